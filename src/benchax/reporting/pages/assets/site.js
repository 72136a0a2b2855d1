"use strict";
// What pages of a site do beside charts: a filter for the list of cases, and two versions side by side.
//
// All numbers are those that benchax wrote into data/. The only arithmetic is the ratio of two medians and whether their
// intervals overlap; no verdict is made here.

const { benchaxIndex, benchaxVersion } = (() => {
  const textOf = (row) => row.cells[0].textContent;

  // ---- the list of cases ----

  const list = /(^|\/)cases(-\d+)?\.html$/.test(location.pathname) && document.querySelector("main .wide");
  const isOneOfSeveral = document.querySelector("main a[href='cases.html'], main a[href^='cases-']");
  if (list && (isOneOfSeveral || list.querySelectorAll("tbody tr").length > 3)) {
    makeFilter("filter-cases", list, () => [...list.querySelectorAll("tbody tr")], textOf);
    if (isOneOfSeveral) addElsewhere(document.getElementById("filter-cases"));
  }

  // Cases on the other pages of the list that the filter asks for: the index of the site has the names of all.
  function addElsewhere(field) {
    const MOST = 50;
    const place = make("div", { id: "elsewhere" });
    list.before(place);
    const here = new Set([...list.querySelectorAll("tbody a")].map((link) => link.getAttribute("href")));
    const show = () => {
      const wanted = field.value.toLowerCase();
      const isFound = ([label, page]) => !here.has(`cases/${page}`) && label.toLowerCase().includes(wanted);
      const found = wanted ? Object.values(index.cases).filter(isFound) : [];
      if (!found.length) return place.replaceChildren();
      const count = `${found.length} on other pages${found.length > MOST ? `, the first ${MOST} of which are` : ""}:`;
      const links = found.slice(0, MOST).map(([label, page]) => make("li", {}, make("a", { href: `cases/${page}` }, label)));
      place.replaceChildren(make("p", { role: "status" }, count), make("ul", {}, ...links));
    };
    const fail = (error) => place.replaceChildren(make("p", { class: "bad" }, error.message));
    field.addEventListener("input", () => loadIndex().then(show, fail));
  }

  // ---- two versions ----

  const NAMES = ["Before", "After"];
  const loaded = new Map();
  let index = null;
  let sides = [];
  let result = null;

  // A page from disk may load scripts, and nothing else.
  const run = (file) => new Promise((resolve, reject) => {
    const script = make("script", { src: `data/${file}` });
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => reject(new Error(`data/${file} could not be read`)));
    document.head.append(script);
  });
  const load = async (file) => {
    if (!loaded.has(file)) await run(file);
    if (!loaded.has(file)) throw new Error(file);
    return loaded.get(file);
  };
  const loadIndex = async () => {
    if (!index) await run("index.js");
  };
  const readVersion = (file, { times, ratios }) => {
    const found = { times: new Map(), ratios: new Map(), environments: new Set([...Object.keys(times), ...Object.keys(ratios)]) };
    for (const [where, entries] of Object.entries(times)) {
      for (const [id, timer, median, low, high] of entries) found.times.set(`${id} ${where}`, { timer, median, low, high });
    }
    for (const [where, entries] of Object.entries(ratios)) {
      for (const [id, baseline, verdict, ratio, low, high] of entries) {
        const key = `${id} ${where}`;
        if (!found.ratios.has(key)) found.ratios.set(key, new Map());
        found.ratios.get(key).set(baseline, { verdict, ratio, low, high });
      }
    }
    loaded.set(file, found);
  };

  const start = (found) => {
    index = found;
    const place = document.getElementById("versions");
    if (!place) return;
    if (!index.versions.length) return place.replaceChildren(make("p", {}, "There is no version with a number yet."));
    result = make("div", { id: "side-by-side" });
    sides = NAMES.map(makeSide);
    place.replaceChildren(make("div", { class: "sides" }, ...sides.map((side) => side.set)), result);
    const wanted = new URLSearchParams(location.hash.slice(1));
    const at = (name, otherwise) => {
      const found = index.versions.findIndex(([, , file]) => file === `${wanted.get(name)}.js`);
      return found < 0 ? Math.min(otherwise, index.versions.length - 1) : found;
    };
    const chosen = [at("a", 1), at("b", 0)];
    const where = [wanted.get("at-a"), wanted.get("at-b")];
    sides.forEach((side, i) => { side.version.value = String(chosen[i]); });
    Promise.all(sides.map((side, i) => choose(side, where[i]))).then(show, fail);
  };
  const makeSide = (name) => {
    const id = name.toLowerCase();
    const version = make("select", { id: `${id}-version` });
    const where = make("select", { id: `${id}-where` });
    index.versions.forEach(([text, day], i) => version.append(make("option", { value: i }, `${text} · ${day}`)));
    const set = make("fieldset", {}, make("legend", {}, name),
      make("label", { for: version.id }, "Version"), version, make("label", { for: where.id }, "Machine and JAX"), where);
    const side = { set, version, where, found: null };
    version.addEventListener("change", () => choose(side).then(show, fail));
    where.addEventListener("change", show);
    return side;
  };
  const fail = (error) => { result.replaceChildren(make("p", { class: "bad" }, error.message)); };
  const fileOf = (side) => index.versions[Number(side.version.value)][2];

  // Where the version was measured; what was chosen stays if it can.
  const choose = async (side, wanted = side.where.value) => {
    side.found = await load(fileOf(side));
    const places = Object.keys(index.environments).filter((key) => side.found.environments.has(key));
    side.where.replaceChildren(...places.map((key) => make("option", { value: key }, index.environments[key].name)));
    if (places.includes(wanted)) side.where.value = wanted;
  };

  // What keeps times apart: facts of the fingerprint that differ. Another backend keeps everything apart.
  const differences = (a, b) => {
    if (a === b) return [];
    const [one, other] = [a, b].map((key) => index.environments[key].own);
    const names = [...new Set([...Object.keys(one), ...Object.keys(other)])].filter((name) => one[name] !== other[name]);
    return names.map((name) => [name, one[name] ?? "unknown", other[name] ?? "unknown"]);
  };

  const show = () => {
    if (sides.some((side) => !side.found)) return;
    const [a, b] = sides.map((side) => side.where.value);
    const [one, other] = sides.map((side) => side.found);
    if (sides.some((side) => side.where.value === "")) {
      return result.replaceChildren(make("p", { class: "warning" }, "One of the two versions has no number."));
    }
    const names = new URLSearchParams({ a: fileOf(sides[0]).slice(0, -3), b: fileOf(sides[1]).slice(0, -3), "at-a": a, "at-b": b });
    history.replaceState(null, "", `#${names}`);
    const found = differences(a, b);
    const backend = found.find(([name]) => name === "backend" || name === "device kind");
    const blocks = describe(found, backend);
    if (!backend) blocks.push(...tabulate(one, other, a, b, !found.length));
    result.replaceChildren(...blocks);
    const table = result.querySelector(".wide");
    if (table) makeFilter("filter-rows", table, () => [...table.querySelectorAll("tbody tr")], textOf);
  };

  const describe = (found, backend) => {
    if (!found.length) return [];
    if (backend) {
      const text = `Not compared: one was measured on ${backend[1]}, the other on ${backend[2]}.`;
      return [make("p", { class: "warning", role: "status" }, text)];
    }
    const head = make("p", { class: "warning", role: "status" },
      "These environments differ, so no ratio of times is given: only ratios to one baseline, each taken on its own machine, "
      + "stand side by side. `benchax compare --jax` measures two versions of JAX on one machine.");
    const rows = found.map((cells) => make("tr", {}, ...cells.map((text, i) => make(i ? "td" : "th", i ? {} : { scope: "row" }, text))));
    const title = make("summary", {}, `${found.length === 1 ? "1 difference" : `${found.length} differences`}: ${found.slice(0, 3).map(([name]) => name).join(", ")}`);
    return [head, make("details", {}, title, make("div", { class: "wide" }, make("table", {}, make("tbody", {}, ...rows))))];
  };

  const writeInterval = (value, low, high, write) => (low === null || high === null ? write(value) : `${write(value)} (${write(low)} – ${write(high)})`);
  const writeTime = (time) => (time ? writeInterval(time.median, time.low, time.high, (s) => writeSeconds(s)) : "not measured");
  const writeChange = (ratio) => `${ratio >= 1 ? "+" : "−"}${writeNumber(Math.abs(100 * (ratio - 1)), 2)} %`;
  const writeRatio = (ratio) => (ratio ? `${writeInterval(ratio.ratio, ratio.low, ratio.high, writeChange)} ${ratio.verdict}` : "not compared");

  const tabulate = (one, other, a, b, isAlike) => {
    const has = (found, where) => [...found.times.keys(), ...found.ratios.keys()].filter((key) => key.endsWith(` ${where}`)).map((key) => key.split(" ")[0]);
    const ids = new Set([...has(one, a), ...has(other, b)]);
    const cases = Object.entries(index.cases).filter(([id]) => ids.has(id)).sort(([, p], [, q]) => (p[0] < q[0] ? -1 : 1));
    const shared = new Set();
    for (const [id] of cases) for (const name of one.ratios.get(`${id} ${a}`)?.keys() || []) if (other.ratios.get(`${id} ${b}`)?.has(name)) shared.add(name);
    const baselines = [...shared].sort();
    const heads = ["case", "time before", "time after"];
    if (isAlike) heads.push("ratio of medians, not judged", "intervals");
    for (const name of baselines) heads.push(`before, against ${name}`, `after, against ${name}`);
    const rows = cases.map(([id, [label, page]]) => {
      const times = [one.times.get(`${id} ${a}`), other.times.get(`${id} ${b}`)];
      const cells = [writeTime(times[0]), writeTime(times[1])];
      if (isAlike) cells.push(...compareTimes(...times));
      for (const name of baselines) cells.push(writeRatio(one.ratios.get(`${id} ${a}`)?.get(name)), writeRatio(other.ratios.get(`${id} ${b}`)?.get(name)));
      const name = make("th", { scope: "row", class: "c" }, make("a", { href: `cases/${page}` }, label));
      return make("tr", {}, name, ...cells.map((text) => make("td", { class: "n" }, text)));
    });
    const head = make("thead", {}, make("tr", {}, ...heads.map((text, i) => make("th", { scope: "col", class: i ? "n" : "c" }, text))));
    const count = make("p", { role: "status", class: "faint" }, `${cases.length} ${cases.length === 1 ? "case" : "cases"}`);
    return [count, make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "side by side" }, make("table", {}, head, make("tbody", {}, ...rows)))];
  };

  const compareTimes = (one, other) => {
    if (!one || !other) return ["", ""];
    if (one.timer !== other.timer) return [`timed by ${one.timer}, then by ${other.timer}`, ""];
    const isKnown = [one.low, one.high, other.low, other.high].every((end) => end !== null);
    const overlap = !isKnown ? "not known" : one.low <= other.high && other.low <= one.high ? "overlap" : "apart";
    return [one.median > 0 ? `${writeNumber(other.median / one.median, 3)} ×` : "", overlap];
  };

  return { benchaxIndex: start, benchaxVersion: readVersion };
})();
