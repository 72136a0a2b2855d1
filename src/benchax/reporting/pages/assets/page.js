"use strict";
// What the page does: charts when they come into view, parts that open, a filter for them, colours, and paper.

// A field above `before` that hides the rows in whose text the typed words do not occur.
function makeFilter(id, before, rowsOf, textOf) {
  const field = make("input", { type: "search", id, placeholder: "name", autocomplete: "off" });
  const count = make("span", { role: "status" });
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    const rows = rowsOf();
    for (const row of rows) row.hidden = !textOf(row).toLowerCase().includes(wanted);
    count.textContent = wanted ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
  });
  const bar = make("div", { class: "filter", role: "search" }, make("label", { for: id }, "Show only "), field, " ", count);
  before.before(bar);
  return bar;
}

(() => {
  const plots = new Map();
  const read = new Map();
  // What was read is kept: paper cannot wait for it.
  const prepare = async (figure) => read.set(figure, read.get(figure) || await readData(figure));
  const draw = (figure) => {
    if (plots.has(figure) || !read.has(figure) || !figure.offsetParent) return;
    plots.set(figure, null);
    if (figure.matches(".outline")) new Outline(figure, read.get(figure));
    else plots.set(figure, new Plot(figure, read.get(figure)));
  };
  const show = (figure) => prepare(figure).then(() => draw(figure)).catch((error) => {
    // The page stays readable, and whoever looks sees why.
    figure.querySelector(".plot, .boxes").textContent = `this chart could not be drawn: ${error.message}`;
    console.error(error);
  });
  const seen = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      show(target);
    }
  }, { rootMargin: "300px" });
  const figures = [...document.querySelectorAll("figure, section.outline")];
  figures.forEach((figure) => seen.observe(figure));
  const MOST_PREPARED = 400;
  const whenIdle = window.requestIdleCallback || ((work) => setTimeout(work, 500));
  if (figures.length <= MOST_PREPARED) {
    whenIdle(() => Promise.all(figures.map(prepare)).then(() => { document.documentElement.dataset.read = "yes"; }));
  }

  // ---- parts: opened by links, and filtered ----

  const parts = [...document.querySelectorAll("details.part")];
  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target || !target.matches("details.part")) return;
    target.open = true;
    target.querySelector("summary").focus();
    target.scrollIntoView();
  };
  addEventListener("hashchange", openTarget);
  openTarget();

  if (parts.length > 3) {
    const bar = makeFilter("filter", parts[0], () => parts, (part) => part.querySelector("summary").textContent);
    const all = make("button", { type: "button" }, "Open all");
    bar.append(" ", all);
    all.addEventListener("click", () => {
      const isOpening = all.textContent === "Open all";
      parts.forEach((part) => { part.open = isOpening && !part.hidden; });
      all.textContent = isOpening ? "Close all" : "Open all";
    });
  }

  // ---- tables that are wider than the page can be scrolled by keys ----

  // Asking for the width of what is closed would lay all of it out, which takes a minute of a thousand cases.
  const findWide = () => {
    const open = "main > .wide, main > section > .wide, .part[open] > .wide, .part[open] > section > .wide";
    const tables = [...document.querySelectorAll(open)];
    const isWide = tables.map((table) => table.scrollWidth > table.clientWidth);
    tables.forEach((table, i) => (isWide[i] ? table.setAttribute("tabindex", "0") : table.removeAttribute("tabindex")));
  };
  findWide();
  parts.forEach((part) => part.addEventListener("toggle", () => part.open && findWide()));

  // ---- colours, sizes and paper ----

  const redraw = () => { for (const plot of plots.values()) if (plot?.canvas.offsetParent) plot.draw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let pending = 0;
  let width = innerWidth;
  addEventListener("resize", () => {
    // A telephone that hides its bars changes the height only, and what was zoomed stays so.
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(pending);
    pending = setTimeout(() => { redraw(); findWide(); }, 150);
  });

  const MOST_PRINTED = 60;
  let opened = [];
  addEventListener("beforeprint", () => {
    document.documentElement.dataset.print = "yes";
    opened = parts.length <= MOST_PRINTED ? parts.filter((part) => !part.open) : [];
    opened.forEach((part) => { part.open = true; });
    figures.forEach(draw);
    redraw();
  });
  addEventListener("afterprint", () => {
    delete document.documentElement.dataset.print;
    opened.forEach((part) => { part.open = false; });
    redraw();
  });
})();
