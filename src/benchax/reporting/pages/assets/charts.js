"use strict";
// One chart: draws it, answers to pointer and keys, shows its numbers as a table and copies them.
//
// The library only draws: what is under the pointer is found here, so that near is near enough, and so that pointer and
// keys say the same.

const NEAR = 28;
const MOST_ROWS = 300;
const KEYS = "Arrow keys move from value to value, + and − zoom, 0 shows all, Escape ends.";
const isDark = () => document.documentElement.dataset.print !== "yes" && matchMedia("(prefers-color-scheme: dark)").matches;
const make = (tag, attributes = {}, ...content) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...content);
  return element;
};

class Plot {
  constructor(figure, data) {
    this.figure = figure;
    this.frame = figure.querySelector(".plot");
    this.title = figure.querySelector("figcaption").textContent;
    this.data = data;
    this.marks = decodeMarks(this.data);
    this.tree = this.marks.find((mark) => mark.type === "Tree");
    this.items = this.tree ? listBranches(this.tree) : listItems(this.data, this.marks);
    this.at = -1;
    this.build();
    this.draw();
  }

  build() {
    this.canvas = make("div", { class: "canvas", tabindex: "0", role: "group", "aria-roledescription": "chart",
      "aria-label": `${this.title}. ${KEYS}` });
    this.canvas.style.height = `${heightOf(this.data, this.frame.clientWidth)}px`;
    this.tip = make("div", { class: "tip", "aria-hidden": "true" });
    this.spoken = make("div", { class: "spoken", role: "status" });
    if (this.data.has_legend || this.data.has_series) this.frame.append(this.makeLegend());
    this.frame.append(this.canvas, this.tip, this.spoken, this.makeTools());
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("blur", () => this.leave());
    if (!this.tree) {
      this.canvas.addEventListener("pointermove", (event) => this.point(event));
      this.canvas.addEventListener("pointerdown", (event) => this.point(event));
      this.canvas.addEventListener("pointerleave", () => this.leave());
    }
  }

  // Words for what the marks mean; colours come with each drawing.
  makeLegend() {
    const legend = make("div", { class: "legend" });
    this.keys = [];
    for (const mark of this.marks) {
      const { label, type, symbol } = mark;
      if (!label || type === "ReferenceLine" || this.keys.some(([, key]) => key === label)) continue;
      const sign = make("span", { "aria-hidden": "true" }, type === "Line" ? "━" : type === "Bars" ? "■" : { diamond: "◆", left: "◀", right: "▶" }[symbol] || "●");
      const word = make("span", {}, ` ${label}`);
      legend.append(sign, word, " ");
      this.keys.push([sign, label, mark]);
    }
    return legend;
  }

  makeTools() {
    const tools = make("div", { class: "tools" });
    const add = (label, title, act) => {
      const button = make("button", { type: "button", "aria-label": `${title}: ${this.title}` }, label);
      button.addEventListener("click", () => act(button));
      tools.append(button);
    };
    if (!this.tree) {
      add("+", "Zoom in", () => this.zoom(0.5));
      add("−", "Zoom out", () => this.zoom(2));
      add("◂", "Move left", () => this.shift(-0.4));
      add("▸", "Move right", () => this.shift(0.4));
    }
    add("All", "Show all", () => this.reset());
    add("Copy CSV", "Copy as CSV", (button) => copyText(button, writeCsv(this.rows())));
    add("Copy JSON", "Copy as JSON", (button) => copyText(button, JSON.stringify(this.rows())));
    const table = make("details", { class: "numbers" });
    table.append(make("summary", { "aria-label": `Numbers as a table: ${this.title}` }, "Numbers"));
    table.addEventListener("toggle", () => table.open && table.childElementCount === 1 && table.append(this.makeTable()));
    const all = make("div");
    all.append(tools, table);
    return all;
  }

  draw() {
    if (this.chart) this.leave();
    this.chart?.dispose();
    this.look = isDark() ? DARK : LIGHT;
    this.chart = echarts.init(this.canvas, null, { renderer: "canvas" });
    this.chart.setOption(this.tree ? treeOption(this.tree, this.look) : this.option());
    if (this.tree) this.chart.on("mouseover", (event) => this.pointAtBranch(event));
    if (this.tree) this.chart.on("mouseout", () => this.leave());
    if (!this.tree) this.chart.on("datazoom", () => this.retick());
    for (const [sign, , mark] of this.keys || []) sign.style.color = markColor(this.look, mark);
    this.pixels = null;
    this.figure.dataset.drawn = "yes";
  }

  option() {
    const { data, marks, look } = this;
    this.view = { x: this.extent("x"), y: this.extent("y") };
    this.shown = { x: [...this.view.x], y: [...this.view.y] };
    const zoom = { type: "inside", filterMode: "none", zoomOnMouseWheel: "ctrl", moveOnMouseMove: !matchMedia("(pointer: coarse)").matches };
    return {
      animation: false, backgroundColor: "transparent",
      textStyle: { fontFamily: "system-ui, sans-serif", color: look.text },
      grid: { left: 8, right: this.hasBeside() ? 8 : 20, top: this.topRoom(), bottom: data.x.title ? 15 + 15 * this.titleLines().length : 8, containLabel: true, outerBoundsMode: "same" },
      xAxis: this.axis("x"), yAxis: this.hasBeside() ? [this.axis("y"), this.axis("y", data.beside)] : this.axis("y"),
      dataZoom: [{ ...zoom, xAxisIndex: 0, id: "x" }, { ...zoom, yAxisIndex: this.hasBeside() ? [0, 1] : 0, id: "y", moveOnMouseMove: false }],
      series: [...seriesOf(data, marks, this.view, look), this.focusSeries()],
    };
  }

  topRoom() {
    const lines = this.marks.filter((mark) => mark.type === "ReferenceLine" && mark.axis === "x" && mark.label);
    return Math.max(this.data.y.title ? 26 : 14, ...lines.map((mark) => 12 + 15 * mark.label.split("\n").length)) + (lines.length && this.data.y.title ? 12 : 0);
  }

  // A telephone has no room for a long title on one line: its parts are below one another.
  titleLines() {
    const title = this.data.x.title || "";
    return this.frame.clientWidth < 500 ? title.split(/ {3,}/) : [title];
  }

  hasBeside() {
    return Boolean(this.data.beside) && this.frame.clientWidth > 800;
  }

  extent(name) {
    const axis = this.data[name];
    const places = this.items.flatMap(({ box, ...item }) => (box ? box[name === "x" ? 0 : 1] : [item[name]]));
    for (const mark of this.marks) {
      if (mark.type === "Points" && (mark.along === "x" ? "x" : "y") === name) {
        places.push(...[...(mark.lows || []), ...(mark.highs || [])].map((value) => toPlace(axis, value)));
      }
      if (mark.type === "ReferenceLine" && mark.axis === name) places.push(toPlace(axis, mark.at));
      if (mark.type === "Shade" && mark.axis === name) places.push(toPlace(axis, mark.low), toPlace(axis, mark.high));
    }
    return extentOf(axis, places);
  }

  ticks(name, given) {
    const [low, high] = this.shown[name];
    const size = name === "x" ? this.frame.clientWidth / 85 : this.canvas.clientHeight / (this.data.y.are_names ? LEAST_ROW : 42);
    const found = ticksBetween(given ? { are_names: true, ticks: given } : this.data[name], low, high, Math.max(2, Math.floor(size)));
    return new Map(found.map(([at, text, style]) => [at, { text, style }]));
  }

  axis(name, given) {
    const { data, look } = this;
    const [low, high] = this.view[name];
    const ticks = this.ticks(name, given);
    const axis = data[name];
    const isNames = Boolean(axis.are_names);
    const room = Math.min(260, this.frame.clientWidth * 0.38);
    return {
      type: "value", min: low, max: high, inverse: name === "y" && isNames, id: given ? "beside" : name, position: given ? "right" : undefined,
      name: given ? "" : name === "x" ? this.titleLines().join("\n") : axis.title || "", nameLocation: name === "x" ? "middle" : "end", nameGap: name === "x" ? 26 : this.topRoom() - 18,
      nameTextStyle: { color: look.faint, align: name === "x" ? "center" : "left", fontSize: 12, lineHeight: 15 },
      nameTruncate: name === "y" ? { maxWidth: this.frame.clientWidth - 70 } : {},
      axisLine: { show: !isNames && !given, onZero: false, lineStyle: { color: look.grid } }, axisTick: { show: false, customValues: [...ticks.keys()] },
      splitLine: { show: !isNames && !given, lineStyle: { color: look.grid } },
      axisLabel: {
        customValues: [...ticks.keys()], hideOverlap: !isNames || name === "x", fontSize: 12,
        formatter: (place) => nearestTick(ticks, place).text, color: (place) => colorOf(look, nearestTick(ticks, Number(place)).style || "text"),
        ...(name === "y" && isNames && !given ? { width: room, overflow: "truncate" } : {}),
        ...(name === "x" && isNames ? { rotate: [...ticks.values()].some((tick) => tick.text.length > 6) ? 40 : 0, width: 120, overflow: "truncate" } : {}),
      },
    };
  }

  focusSeries(data = []) {
    return { id: "focus", type: "scatter", data, symbolSize: 16, silent: true, z: 20, clip: true,
      itemStyle: { color: "transparent", borderColor: this.look.text, borderWidth: 2 } };
  }

  // ---- zooming ----

  retick() {
    for (const zoom of this.chart.getOption().dataZoom) {
      const [low, high] = this.view[zoom.id];
      this.shown[zoom.id] = [low + (high - low) * zoom.start / 100, low + (high - low) * zoom.end / 100];
    }
    this.pixels = null;
    const change = (name, given) => {
      const { id, axisLabel, axisTick } = this.axis(name, given);
      return { id, axisLabel, axisTick };
    };
    const y = this.hasBeside() ? [change("y"), change("y", this.data.beside)] : change("y");
    this.chart.setOption({ xAxis: change("x"), yAxis: y });
  }

  // Names are read from top to bottom: a list is zoomed along its values, a heat map along both.
  zoom(factor) {
    const item = this.items[this.at];
    for (const name of ["x", "y"]) {
      if (name === "y" && (this.data.y.are_names || !this.marks.some((mark) => mark.type === "Points"))) continue;
      const [low, high] = this.shown[name];
      const middle = item && item[name] !== null ? item[name] : (low + high) / 2;
      this.window(name, middle - (middle - low) * factor, middle + (high - middle) * factor);
    }
  }

  shift(share) {
    const [low, high] = this.shown.x;
    const least = this.view.x[0] - low, most = this.view.x[1] - high;
    const step = Math.min(most, Math.max(least, share * (high - low)));
    this.window("x", low + step, high + step);
  }

  window(name, low, high) {
    const [first, last] = this.view[name];
    const share = (place) => Math.min(100, Math.max(0, 100 * (place - first) / (last - first)));
    this.chart.dispatchAction({ type: "dataZoom", dataZoomId: name, start: share(low), end: share(high) });
  }

  reset() {
    this.leave();
    if (this.tree) this.chart.setOption(treeOption(this.tree, this.look), true);
    else for (const name of ["x", "y"]) this.chart.dispatchAction({ type: "dataZoom", dataZoomId: name, start: 0, end: 100 });
  }

  // ---- pointing ----

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const found = this.find(event.clientX - box.left, event.clientY - box.top);
    if (found >= 0) this.show(found, false);
    else this.leave();
  }

  find(x, y) {
    const place = this.chart.convertFromPixel({ gridIndex: 0 }, [x, y]);
    if (!this.chart.containPixel({ gridIndex: 0 }, [x, y])) return -1;
    const inside = this.items.findIndex(({ box }) => box && box.every(([a, b], n) => place[n] >= Math.min(a, b) && place[n] <= Math.max(a, b)));
    if (inside >= 0) return inside;
    this.pixels ||= this.items.map((item) => this.pixelOf(item));
    let best = -1, least = NEAR ** 2;
    this.pixels.forEach(([px, py], i) => {
      const distance = (px - x) ** 2 + (py - y) ** 2 + (this.items[i].isOnLine ? 1 : 0);
      if (distance < least) [best, least] = [i, distance];
    });
    return best;
  }

  // Where it is drawn: what lies beyond the axis, or has no value, stands at the edge.
  placeOf(item) {
    return ["x", "y"].map((name) => {
      const [low, high] = this.view[name];
      return item[name] === null ? low + (high - low) * 0.02 : Math.min(high, Math.max(low, item[name]));
    });
  }

  pixelOf(item) {
    return this.chart.convertToPixel({ gridIndex: 0 }, this.placeOf(item));
  }

  show(place, isSpoken) {
    this.at = place;
    const item = this.items[place];
    if (!this.tree) this.chart.setOption({ series: [{ id: "focus", data: [this.placeOf(item)] }] });
    this.showTip(item.lines, ...(this.tree ? [8, 40] : this.pixelOf(item)));
    if (isSpoken) this.spoken.textContent = `${item.lines.join(", ")} (${place + 1} of ${this.items.length})`;
  }

  showTip(lines, x, y) {
    this.tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
    this.tip.classList.add("on");
    const width = this.canvas.clientWidth;
    this.tip.style.left = `${Math.max(0, Math.min(x + 14, width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${Math.max(0, y - this.tip.offsetHeight - 12)}px`;
  }

  pointAtBranch({ data, event }) {
    if (!data?.lines) return;
    this.showTip(data.lines, event.offsetX, event.offsetY);
  }

  leave() {
    this.tip.classList.remove("on");
    if (!this.tree && this.at >= 0) this.chart.setOption({ series: [{ id: "focus", data: [] }] });
    this.at = -1;
  }

  press(event) {
    const last = this.items.length - 1;
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in moves) this.step(Math.min(last, Math.max(0, this.at < 0 ? (moves[event.key] > 0 ? 0 : last) : this.at + moves[event.key])));
    else if (event.key === "Home") this.step(0);
    else if (event.key === "End") this.step(last);
    else if (event.key === "Escape") this.leave();
    else if (event.key === "0") this.reset();
    else if (this.tree && event.key === "Enter" && this.at >= 0) this.chart.dispatchAction({ type: "treemapRootToNode", seriesIndex: 0, targetNodeId: this.items[this.at].id });
    else if (!this.tree && (event.key === "+" || event.key === "=")) this.zoom(0.5);
    else if (!this.tree && event.key === "-") this.zoom(2);
    else return;
    event.preventDefault();
  }

  step(place) {
    if (place >= 0 && this.items.length) this.show(place, true);
  }

  // ---- numbers ----

  // One object for each item, with names for what the axes have names for.
  rows() {
    if (this.tree) return this.items.map(({ row }) => row);
    const { x, y } = this.data;
    return this.items.map(({ row }) => {
      const found = {};
      const put = (name, value) => { if (value !== undefined && value !== null && value !== "") found[name] = value; };
      const named = (axis, value) => (axis.are_names && axis.ticks?.[value] ? axis.ticks[value][1] : value);
      put("series", row.series);
      put(x.title && x.title !== y.title ? x.title : "x", named(x, row.x));
      put(y.title && x.title !== y.title ? y.title : "y", named(y, row.y));
      put("value", row.value);
      put("low", row.low);
      put("high", row.high);
      put("what", row.text);
      return found;
    });
  }

  makeTable() {
    const rows = this.rows();
    const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
    const wide = make("div", { class: "wide", tabindex: "0", role: "group", "aria-label": `Numbers: ${this.title}` });
    const table = make("table");
    const head = table.createTHead().insertRow();
    names.forEach((name) => head.append(make("th", { scope: "col" }, name)));
    const body = table.createTBody();
    for (const row of rows.slice(0, MOST_ROWS)) {
      const line = body.insertRow();
      names.forEach((name) => line.insertCell().append(row[name] === undefined ? "" : String(row[name])));
    }
    wide.append(table);
    if (rows.length > MOST_ROWS) wide.append(make("p", { class: "faint" }, `${MOST_ROWS} of ${rows.length} lines; the copies have all`));
    return wide;
  }
}

function nearestTick(ticks, place) {
  if (ticks.has(place)) return ticks.get(place);
  let best = { text: "", style: "" }, least = Infinity;
  for (const [at, tick] of ticks) if (Math.abs(at - place) < least) [best, least] = [tick, Math.abs(at - place)];
  return best;
}

function heightOf(data, width) {
  if (data.marks.some((mark) => mark.type === "Tree")) return width < 500 ? 320 : 420;
  const rows = data.y.are_names ? (data.y.ticks || []).length : 0;
  if (!rows) return 260;
  return Math.min(MOST_HEIGHT, Math.max(110, rows * ROW + 70));
}

function writeCsv(rows) {
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const quote = (value) => (value === undefined ? "" : /[",\r\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((line) => line.map(quote).join(",")).join("\n");
}

async function copyText(button, text) {
  const before = button.textContent;
  const isCopied = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copyBySelection(text);
  button.textContent = isCopied ? "Copied" : "Not copied";
  setTimeout(() => { button.textContent = before; }, 1500);
}

// Where a page from disk may not use the clipboard.
function copyBySelection(text) {
  const area = make("textarea", { class: "spoken" });
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}
