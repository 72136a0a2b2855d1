"use strict";
// What pages of a site do beside charts: a filter for the list of cases, and two versions side by side.
//
// All numbers are those that benchax wrote into data/. The only arithmetic is the ratio of two medians and whether their
// intervals overlap; no verdict is made here.

const { benchaxIndex, benchaxVersion } = (() => {
  const build = (tag, attributes = {}, ...content) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...content);
    return element;
  };
  const makeFilter = (id, rowsOf, before) => {
    const field = build("input", { type: "search", id, placeholder: "name", autocomplete: "off" });
    const count = build("span", { role: "status" });
    const apply = () => {
      const wanted = field.value.toLowerCase();
      const rows = rowsOf();
      let n = 0;
      for (const row of rows) {
        row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
        n += row.hidden ? 0 : 1;
      }
      count.textContent = wanted ? `${n} of ${rows.length}` : "";
    };
    field.addEventListener("input", apply);
    before.before(build("div", { class: "filter", role: "search" }, build("label", { for: id }, "Show only "), field, " ", count));
    return apply;
  };

  // ---- the list of cases ----

  const list = /(^|\/)cases(-\d+)?\.html$/.test(location.pathname) && document.querySelector("main .wide");
  const isOneOfSeveral = document.querySelector("main a[href='cases.html'], main a[href^='cases-']");
  if (list && (isOneOfSeveral || list.querySelectorAll("tbody tr").length > 3)) {
    makeFilter("filter-cases", () => [...list.querySelectorAll("tbody tr")], list);
    if (isOneOfSeveral) addElsewhere(document.getElementById("filter-cases"));
  }

  // Cases on the other pages of the list that the filter asks for: the index of the site has the names of all.
  function addElsewhere(field) {
    const MOST = 50;
    const place = build("div", { id: "elsewhere" });
    list.before(place);
    const here = new Set([...list.querySelectorAll("tbody a")].map((link) => link.getAttribute("href")));
    const show = () => {
      const wanted = field.value.toLowerCase();
      const isFound = ([label, page]) => !here.has(`cases/${page}`) && label.toLowerCase().includes(wanted);
      const found = wanted ? Object.values(index.cases).filter(isFound) : [];
      if (!found.length) return place.replaceChildren();
      const count = `${found.length} on other pages${found.length > MOST ? `, the first ${MOST} of which are` : ""}:`;
      const links = found.slice(0, MOST).map(([label, page]) => build("li", {}, build("a", { href: `cases/${page}` }, label)));
      place.replaceChildren(build("p", { role: "status" }, count), build("ul", {}, ...links));
    };
    const fail = (error) => place.replaceChildren(build("p", { class: "bad" }, error.message));
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
    const script = build("script", { src: `data/${file}` });
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
    const transpose = (columns) => (columns[0] || []).map((_, i) => columns.map((column) => column[i]));
    const found = { times: new Map(), ratios: new Map(), environments: new Set() };
    for (const [id, where, timer, median, low, high] of transpose(times)) {
      found.environments.add(where);
      found.times.set(`${id} ${where}`, { timer, median, low, high });
    }
    for (const [id, where, baseline, verdict, ratio, low, high] of transpose(ratios)) {
      found.environments.add(where);
      const key = `${id} ${where}`;
      if (!found.ratios.has(key)) found.ratios.set(key, new Map());
      found.ratios.get(key).set(baseline, { verdict, ratio, low, high });
    }
    loaded.set(file, found);
  };

  const start = (found) => {
    index = found;
    const place = document.getElementById("versions");
    if (!place) return;
    if (!index.versions.length) return place.replaceChildren(build("p", {}, "There is no version with a number yet."));
    result = build("div", { id: "side-by-side" });
    sides = NAMES.map(makeSide);
    place.replaceChildren(build("div", { class: "sides" }, ...sides.map((side) => side.set)), result);
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
    const version = build("select", { id: `${id}-version` });
    const where = build("select", { id: `${id}-where` });
    index.versions.forEach(([text, day], i) => version.append(build("option", { value: i }, `${text} · ${day}`)));
    const set = build("fieldset", {}, build("legend", {}, name),
      build("label", { for: version.id }, "Version"), version, build("label", { for: where.id }, "Machine and JAX"), where);
    const side = { set, version, where, found: null };
    version.addEventListener("change", () => choose(side).then(show, fail));
    where.addEventListener("change", show);
    return side;
  };
  const fail = (error) => { result.replaceChildren(build("p", { class: "bad" }, error.message)); };
  const fileOf = (side) => index.versions[Number(side.version.value)][2];

  // Where the version was measured; what was chosen stays if it can.
  const choose = async (side, wanted = side.where.value) => {
    side.found = await load(fileOf(side));
    const places = [...side.found.environments].sort((a, b) => a - b);
    side.where.replaceChildren(...places.map((i) => build("option", { value: i }, index.environments.names[i])));
    if (places.map(String).includes(wanted)) side.where.value = wanted;
  };

  // What keeps times apart: facts of the fingerprint that differ. Another backend keeps everything apart.
  const differences = (a, b) => {
    if (a === b) return [];
    const [one, other] = [index.environments.own[a] || {}, index.environments.own[b] || {}];
    const names = [...new Set([...Object.keys(one), ...Object.keys(other)])].filter((name) => one[name] !== other[name]);
    return names.map((name) => [name, one[name] ?? "unknown", other[name] ?? "unknown"]);
  };

  const show = () => {
    if (sides.some((side) => !side.found)) return;
    const [a, b] = sides.map((side) => Number(side.where.value));
    const [one, other] = sides.map((side) => side.found);
    if (sides.some((side) => side.where.value === "")) {
      return result.replaceChildren(build("p", { class: "warning" }, "One of the two versions has no number."));
    }
    const names = new URLSearchParams({ a: fileOf(sides[0]).slice(0, -3), b: fileOf(sides[1]).slice(0, -3), "at-a": a, "at-b": b });
    history.replaceState(null, "", `#${names}`);
    const found = differences(a, b);
    const backend = found.find(([name]) => name === "backend" || name === "device kind");
    const blocks = describe(found, backend);
    if (!backend) blocks.push(...tabulate(one, other, a, b, !found.length));
    result.replaceChildren(...blocks);
    const table = result.querySelector(".wide");
    if (table) makeFilter("filter-rows", () => [...table.querySelectorAll("tbody tr")], table);
  };

  const describe = (found, backend) => {
    if (!found.length) return [];
    if (backend) {
      const text = `Not compared: one was measured on ${backend[1]}, the other on ${backend[2]}.`;
      return [build("p", { class: "warning", role: "status" }, text)];
    }
    const head = build("p", { class: "warning", role: "status" },
      "These environments differ, so no ratio of times is given: only ratios to one baseline, each taken on its own machine, "
      + "stand side by side. `benchax compare --jax` measures two versions of JAX on one machine.");
    const rows = found.map((cells) => build("tr", {}, ...cells.map((text, i) => build(i ? "td" : "th", i ? {} : { scope: "row" }, text))));
    const title = build("summary", {}, `${found.length === 1 ? "1 difference" : `${found.length} differences`}: ${found.slice(0, 3).map(([name]) => name).join(", ")}`);
    return [head, build("details", {}, title, build("div", { class: "wide" }, build("table", {}, build("tbody", {}, ...rows))))];
  };

  const writeInterval = (value, low, high, write) => (low === null || high === null ? write(value) : `${write(value)} (${write(low)} – ${write(high)})`);
  const writeTime = (time) => (time ? writeInterval(time.median, time.low, time.high, (s) => writeSeconds(s)) : "not measured");
  const writeChange = (ratio) => `${ratio >= 1 ? "+" : "−"}${writeNumber(Math.abs(100 * (ratio - 1)), 2)} %`;
  const writeRatio = (ratio) => (ratio ? `${writeInterval(ratio.ratio, ratio.low, ratio.high, writeChange)} ${index.verdicts[ratio.verdict]}` : "not compared");

  const tabulate = (one, other, a, b, isAlike) => {
    const has = (found, where) => [...found.times.keys(), ...found.ratios.keys()].filter((key) => key.endsWith(` ${where}`)).map((key) => key.split(" ")[0]);
    const ids = new Set([...has(one, a), ...has(other, b)]);
    const cases = Object.entries(index.cases).filter(([id]) => ids.has(id)).sort(([, p], [, q]) => (p[0] < q[0] ? -1 : 1));
    const shared = new Set();
    for (const [id] of cases) for (const name of one.ratios.get(`${id} ${a}`)?.keys() || []) if (other.ratios.get(`${id} ${b}`)?.has(name)) shared.add(name);
    const baselines = [...shared].sort((p, q) => p - q);
    const heads = ["case", "time before", "time after"];
    if (isAlike) heads.push("ratio of medians, not judged", "intervals");
    for (const name of baselines) heads.push(`before, against ${index.baselines[name]}`, `after, against ${index.baselines[name]}`);
    const rows = cases.map(([id, [label, page]]) => {
      const times = [one.times.get(`${id} ${a}`), other.times.get(`${id} ${b}`)];
      const cells = [writeTime(times[0]), writeTime(times[1])];
      if (isAlike) cells.push(...compareTimes(...times));
      for (const name of baselines) cells.push(writeRatio(one.ratios.get(`${id} ${a}`)?.get(name)), writeRatio(other.ratios.get(`${id} ${b}`)?.get(name)));
      const name = build("th", { scope: "row", class: "c" }, build("a", { href: `cases/${page}` }, label));
      return build("tr", {}, name, ...cells.map((text) => build("td", { class: "n" }, text)));
    });
    const head = build("thead", {}, build("tr", {}, ...heads.map((text, i) => build("th", { scope: "col", class: i ? "n" : "c" }, text))));
    const count = build("p", { role: "status", class: "faint" }, `${cases.length} ${cases.length === 1 ? "case" : "cases"}`);
    return [count, build("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "side by side" }, build("table", {}, head, build("tbody", {}, ...rows)))];
  };

  const compareTimes = (one, other) => {
    if (!one || !other) return ["", ""];
    if (one.timer !== other.timer) return [`timed by ${index.timers[one.timer]}, then by ${index.timers[other.timer]}`, ""];
    const isKnown = [one.low, one.high, other.low, other.high].every((end) => end !== null);
    const overlap = !isKnown ? "not known" : one.low <= other.high && other.low <= one.high ? "overlap" : "apart";
    return [one.median > 0 ? `${writeNumber(other.median / one.median, 3)} ×` : "", overlap];
  };

  return { benchaxIndex: start, benchaxVersion: readVersion };
})();
