"use strict";
// From a chart's data to what the chart library draws, and to the list of all that a pointer or a key can reach.
//
// A place of an axis is what the library gets: on a logarithmic axis the logarithm of the value. Ticks are ours, so that
// they read as everywhere in benchax and stay right while one zooms.

const LIGHT = {
  text: "#1b1f24", faint: "#5b6570", grid: "#dde1e6", back: "#ffffff", shade: "rgba(100,116,139,.16)",
  "": "#0067a3", good: "#00734f", bad: "#b54708", warning: "#8f5a00", info: "#2a7da8", title: "#1b1f24",
};
const DARK = {
  text: "#e6e9ed", faint: "#a0a9b4", grid: "#39414b", back: "#16191d", shade: "rgba(148,163,184,.2)",
  "": "#62b5ee", good: "#3fc795", bad: "#ff8f57", warning: "#e0a840", info: "#7cc7ea", title: "#e6e9ed",
};
const ROW = 24, LEAST_ROW = 14, MOST_HEIGHT = 14000;
const CROSS = "path://M0,0L10,10M10,0L0,10";
const SYMBOLS = { circle: "circle", diamond: "diamond", left: "path://M10,0L0,5L10,10Z", right: "path://M0,0L10,5L0,10Z" };

// Of what has no style, by its label: told apart by all kinds of eyes (Okabe & Ito 2008), dark and light enough here.
const SERIES = {
  light: ["#0067a3", "#a34a00", "#00734f", "#9a3d7c", "#7a6200", "#2a7da8", "#5b5b5b", "#b3261e"],
  dark: ["#62b5ee", "#ff9a5c", "#3fc795", "#e79ac9", "#e6cf4a", "#9fd8f5", "#c3c9d0", "#ff8a80"],
};

const colorOf = (look, style) => look[style || ""] || look[""];
const markColor = (look, { nth, style }) => {
  const colors = SERIES[look === DARK ? "dark" : "light"];
  return nth === undefined ? colorOf(look, style) : colors[nth % colors.length];
};
const toPlace = (axis, value) => (value === null || value === undefined ? null : axis.is_log ? (value > 0 ? Math.log10(value) : null) : value);
const toValue = (axis, place) => (axis.is_log ? 10 ** place : place);

// ---- axes ----------------------------------------------------------------------------------------------------

function niceStep(span, most, isBinary) {
  const raw = span / Math.max(1, most);
  if (isBinary && raw > 1) return 2 ** Math.ceil(Math.log2(raw));
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].find((n) => n * power >= raw * 0.999) * power;
}

// Ticks between two places, as [place, text, style].
function ticksBetween(axis, low, high, most) {
  if (axis.ticks) {
    const every = axis.are_names ? Math.ceil(axis.ticks.filter(([at]) => at >= low && at <= high).length / most) : 1;
    const shown = axis.ticks.map(([at, text, style]) => [toPlace(axis, at), text, style]);
    return shown.filter(([at], i) => at >= low && at <= high && i % every === 0);
  }
  const places = [];
  if (axis.is_log && high - low > 0.6) {
    const digits = high - low > 4 ? [1] : high - low > 2 ? [1, 3] : [1, 2, 5];
    for (let decade = Math.floor(low); decade <= high; decade += 1) {
      for (const digit of digits) places.push(decade + Math.log10(digit));
    }
    const kept = places.filter((at) => at >= low && at <= high);
    const every = Math.ceil(kept.length / most);
    return kept.filter((_, i) => i % every === 0).map((at) => [at, writeValue(10 ** at, axis.quantity, 1), ""]);
  }
  const [from, to] = [toValue(axis, low), toValue(axis, high)];
  if (!(to > from)) return [];
  const step = Math.max(axis.quantity === "count" ? 1 : 0, niceStep(to - from, most, axis.quantity === "bytes"));
  const digits = Math.max(3, Math.ceil(Math.log10(Math.max(Math.abs(from), Math.abs(to)) / step)) + 1);
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to * (1 + 1e-12) && places.length < 60; n += 1) places.push(n * step);
  const write = (v) => trimZeros(writeValue(Math.abs(v) < step / 1e6 ? 0 : v, axis.quantity, digits));
  return places.map((value) => [toPlace(axis, value), write(value), ""]);
}

// 1.200 ms as 1.2 ms.
const trimZeros = (text) => text.replace(/(\.\d*?)0+(?=\s|$)/, "$1").replace(/\.(?=\s|$)/, "");

function extentOf(axis, places) {
  if (axis.ends) return decodeNumbers(axis.ends).map((end) => toPlace(axis, end));
  if (axis.are_names) return [-0.5, Math.max(1, (axis.ticks || []).length) - 0.5];
  let low = Infinity, high = -Infinity;
  for (const place of places) {
    if (place === null || !Number.isFinite(place)) continue;
    if (place < low) low = place;
    if (place > high) high = place;
  }
  if (low > high) return [0, 1];
  const room = high > low ? (high - low) * 0.04 : Math.abs(high) * 0.1 || 1;
  return [low === 0 ? 0 : low - room, high + room];
}

// ---- marks ---------------------------------------------------------------------------------------------------

// All marks with decoded numbers; {type, ...}.
function decodeMarks(chart) {
  const labels = [];
  return chart.marks.map((mark) => {
    const found = { ...mark };
    for (const name of ["places", "values", "lows", "highs"]) {
      if (name in mark && mark.type !== "Cells") found[name] = decodeNumbers(mark[name]);
    }
    const isNamed = chart.has_series && !mark.style && mark.label;
    if (isNamed && !labels.includes(mark.label)) labels.push(mark.label);
    if (isNamed) found.nth = labels.indexOf(mark.label);
    if (mark.type === "Shade") return found;
    if (mark.type === "Line") Object.assign(found, { x: decodeNumbers(mark.x), y: decodeNumbers(mark.y) });
    if (mark.type === "Cells") Object.assign(found, { values: mark.values.map(decodeNumbers) });
    found.texts = mark.texts || [];
    return found;
  });
}

const nameOf = (axis, value) => (axis.are_names && axis.ticks?.[value] ? axis.ticks[value][1] : writeValue(value, axis.quantity, 4));
const isKnown = (value) => value !== undefined && value !== null;

// All that can be pointed at: {x, y} as places, a box, what is said of it in a few short lines, and its row of the table.
function listItems(chart, marks) {
  const items = [];
  const at = (x, y) => `${nameOf(chart.y, y)} at ${nameOf(chart.x, x)}`;
  const put = (item, lines) => items.push({ ...item, lines: [...new Set(lines.filter(Boolean))].map((line) => (line.length > 300 ? `${line.slice(0, 300)}…` : line)) });
  const list = {
    Points: (mark) => mark.places.forEach((place, i) => {
      const [x, y] = mark.along === "x" ? [mark.values[i], place] : [place, mark.values[i]];
      const [low, high, text] = [mark.lows?.[i], mark.highs?.[i], mark.texts[i]];
      const quantity = chart[mark.along || "y"].quantity;
      const interval = isKnown(low) ? `95 % ${writeValue(low, quantity, 4)} to ${writeValue(high, quantity, 4)}` : "";
      put({ x: toPlace(chart.x, x), y: toPlace(chart.y, y), row: { series: mark.label || "", x, y, low, high, text } }, [text, at(x, y), interval, mark.label]);
    }),
    Bars: (mark) => mark.places.forEach((place, i) => {
      const [along, across] = mark.along === "x" ? ["x", "y"] : ["y", "x"];
      const half = (mark.thickness ?? 0.8) / 2;
      const [low, high, text] = [mark.lows[i], mark.highs[i], mark.texts[i]];
      const write = (value) => writeValue(value, chart[along].quantity, 4);
      const boxes = { [along]: [low, high].map((v) => toPlace(chart[along], v)), [across]: [place - half, place + half].map((v) => toPlace(chart[across], v)) };
      const middle = { [along]: (boxes[along][0] + boxes[along][1]) / 2, [across]: toPlace(chart[across], place) };
      const name = chart[across].are_names ? nameOf(chart[across], place) : (mark.label || "").trim();
      put({ ...middle, box: [boxes.x, boxes.y], row: { series: mark.label || "", [across]: place, low, high, text } },
        [text, name, low ? `${write(high - low)} from ${write(low)}` : write(high)]);
    }),
    Cells: (mark) => mark.values.forEach((line, y) => line.forEach((value, x) => {
      const text = value === null ? mark.words[y][x] : "";
      put({ x, y, box: [[x - 0.5, x + 0.5], [y - 0.5, y + 0.5]], row: { series: "", x, y, value, text } },
        [text, `${nameOf(chart.y, y)} · ${nameOf(chart.x, x)}`, value === null ? "" : writeSeconds(value, 4)]);
    })),
    Line: (mark) => mark.x.forEach((x, i) => {
      const [y, series] = [mark.y[i], mark.label || "line"];
      put({ x: toPlace(chart.x, x), y: toPlace(chart.y, y), isOnLine: true, row: { series, x, y } }, [at(x, y), series]);
    }),
    Note: ({ x, y, text }) => put({ x: toPlace(chart.x, x), y: toPlace(chart.y, y), row: { series: "", x, y, text } }, [text, at(x, y)]),
  };
  marks.forEach((mark) => list[mark.type]?.(mark));
  return items.sort((a, b) => (chart.y.are_names ? a.y - b.y || a.x - b.x : a.x - b.x || a.y - b.y));
}

// ---- series --------------------------------------------------------------------------------------------------

function seriesOf(chart, marks, view, look) {
  const series = [guidesOf(chart, marks, look)];
  marks.forEach((mark, n) => {
    if (mark.type === "Points") series.push(...pointsOf(chart, mark, view, look));
    if (mark.type === "Bars") series.push(barsOf(chart, mark, look));
    if (mark.type === "Cells") series.push(cellsOf(mark, look));
    if (mark.type === "Line") {
      const data = mark.x.map((x, i) => [toPlace(chart.x, x), toPlace(chart.y, mark.y[i])]);
      series.push({ type: "line", data, symbol: "none", silent: true, clip: true, z: 3,
        lineStyle: { color: markColor(look, mark), width: 1.6, opacity: 0.85 } });
    }
    if (mark.type === "Note") series.push({
      type: "scatter", symbolSize: 1, silent: true, data: [[toPlace(chart.x, mark.x), toPlace(chart.y, mark.y)]],
      label: { show: true, formatter: mark.text, position: "right", color: colorOf(look, mark.style) } });
  });
  return series;
}

// Lines and shades across the chart.
function guidesOf(chart, marks, look) {
  const lines = marks.filter((mark) => mark.type === "ReferenceLine").map((mark) => ({
    [mark.axis === "x" ? "xAxis" : "yAxis"]: toPlace(chart[mark.axis], mark.at),
    lineStyle: {
      color: colorOf(look, mark.style), opacity: mark.kind === "break" ? 0.35 : 0.9,
      width: mark.kind === "break" ? 4 : 1.3, type: mark.kind === "change" ? "dashed" : "solid" },
    label: { show: Boolean(mark.label), formatter: mark.label || "", color: colorOf(look, mark.style),
      position: mark.axis === "x" ? "end" : "insideEndTop", rotate: 0, align: mark.axis === "x" ? "center" : "right", fontSize: 11, lineHeight: 14 },
  }));
  const areas = marks.filter((mark) => mark.type === "Shade").map((mark) => {
    const name = mark.axis === "x" ? "xAxis" : "yAxis";
    return [{ [name]: toPlace(chart[mark.axis], mark.low) }, { [name]: toPlace(chart[mark.axis], mark.high) }];
  });
  return {
    type: "line", data: [], silent: true, z: 1,
    markLine: { silent: true, symbol: "none", precision: -1, data: lines },
    markArea: { silent: true, itemStyle: { color: look.shade }, data: areas },
  };
}

// Values that lie beyond the axis stand at its edge, as arrows; those that are not there as crosses.
function pointsOf(chart, mark, view, look) {
  const isSideways = mark.along === "x";
  const axis = isSideways ? "x" : "y";
  const [low, high] = view[axis];
  const color = markColor(look, mark);
  const at = (place, value) => (isSideways ? [value, toPlace(chart.y, place)] : [toPlace(chart.x, place), value]);
  const data = [], ends = [];
  mark.places.forEach((place, i) => {
    const value = toPlace(chart[axis], mark.values[i]);
    const isBeyond = value !== null && (value < low || value > high);
    const shown = value === null ? low + (high - low) * 0.02 : Math.min(high, Math.max(low, value));
    const point = { value: at(place, shown) };
    if (value === null) Object.assign(point, { symbol: CROSS, symbolSize: 8, itemStyle: { borderColor: color, borderWidth: 1.5 } });
    if (isBeyond) Object.assign(point, { symbol: "triangle", symbolSize: 9, symbolRotate: (value > high ? 0 : 180) - (isSideways ? 90 : 0) });
    data.push(point);
    if (mark.lows && mark.lows[i] !== null && mark.lows[i] !== undefined) {
      const span = [toPlace(chart[axis], mark.lows[i]) ?? low, toPlace(chart[axis], mark.highs[i]) ?? high];
      ends.push([toPlace(isSideways ? chart.y : chart.x, place), Math.max(low, span[0]), Math.min(high, span[1])]);
    }
  });
  const item = mark.is_hollow ? { color: look.back, borderColor: color, borderWidth: 1.5 } : { color, opacity: data.length > 400 ? 0.6 : 0.9 };
  const size = isSideways ? 11 : data.length > 400 ? 4 : 6;
  const dots = { type: "scatter", data, symbol: SYMBOLS[mark.symbol] || "circle", symbolSize: size, itemStyle: item, silent: true, z: 4, emphasis: { disabled: true } };
  return ends.length ? [intervalsOf(ends, isSideways, color), dots] : [dots];
}

function intervalsOf(data, isSideways, color) {
  const renderItem = (_, api) => {
    const ends = [1, 2].map((n) => api.coord(isSideways ? [api.value(n), api.value(0)] : [api.value(0), api.value(n)]));
    return { type: "line", shape: { x1: ends[0][0], y1: ends[0][1], x2: ends[1][0], y2: ends[1][1] }, style: { stroke: color, lineWidth: isSideways ? 3 : 2, opacity: 0.55 } };
  };
  const encode = isSideways ? { x: [1, 2], y: 0 } : { x: 0, y: [1, 2] };
  return { type: "custom", renderItem, data, encode, clip: true, silent: true, z: 3 };
}

function barsOf(chart, mark, look) {
  const isSideways = mark.along === "x";
  const half = (mark.thickness ?? 0.8) / 2;
  const color = markColor(look, mark);
  const values = isSideways ? chart.x : chart.y;
  const data = mark.places.map((place, i) => [place, toPlace(values, mark.lows[i]), toPlace(values, mark.highs[i])]);
  const renderItem = (params, api) => {
    const [place, low, high] = [0, 1, 2].map((n) => api.value(n));
    const a = api.coord(isSideways ? [low, place - half] : [place - half, low]);
    const b = api.coord(isSideways ? [high, place + half] : [place + half, high]);
    const room = params.coordSys;
    const [left, right] = [Math.max(room.x, Math.min(a[0], b[0])), Math.min(room.x + room.width, Math.max(a[0], b[0]))];
    if (right < left || low === high) return null;
    const [top, bottom] = [Math.min(a[1], b[1]), Math.max(a[1], b[1])];
    const shape = { x: left, y: top, width: Math.max(1, right - left), height: Math.max(1, bottom - top) };
    const text = mark.texts[params.dataIndex];
    const isLabelled = text && isSideways && shape.width > 44 && shape.height > 11;
    const style = { fill: color, opacity: 0.85, stroke: look.back, lineWidth: shape.width > 3 ? 0.5 : 0 };
    const content = { type: "text", style: { text: text?.split("\n")[0], fill: look.back, width: shape.width - 6, overflow: "truncate", fontSize: 11 } };
    return { type: "rect", shape, style, ...(isLabelled ? { textContent: content, textConfig: { position: "inside" } } : {}) };
  };
  const encode = isSideways ? { x: [1, 2], y: 0 } : { x: 0, y: [1, 2] };
  return { type: "custom", renderItem, data, encode, clip: true, silent: true, z: 2 };
}

// Pale is fast and dark is slow, on a scale of logarithms that spans a factor of ten at least.
function cellsOf(mark, look) {
  const known = mark.values.flat().filter((v) => v > 0).map(Math.log10);
  const middle = known.length ? (Math.min(...known) + Math.max(...known)) / 2 : 0;
  const reach = Math.max(0.5, known.length ? (Math.max(...known) - Math.min(...known)) / 2 : 0);
  const data = mark.values.flatMap((line, y) => line.map((value, x) => [x, y, value ?? -1]));
  const renderItem = (params, api) => {
    const [x, y] = [api.value(0), api.value(1)];
    const value = mark.values[y][x];
    const [a, b] = [api.coord([x - 0.5, y - 0.5]), api.coord([x + 0.5, y + 0.5])];
    const shape = { x: Math.min(a[0], b[0]), y: Math.min(a[1], b[1]), width: Math.abs(b[0] - a[0]) - 1, height: Math.abs(b[1] - a[1]) - 1 };
    const share = value > 0 ? (Math.log10(value) - middle + reach) / (2 * reach) : 0;
    const fill = value === null ? look.grid : heatColor(share);
    const word = value === null ? mark.words[y][x] : writeSeconds(value);
    const ink = value === null ? look.text : share > 0.45 ? "#ffffff" : "#111111";
    const content = { type: "text", style: { text: word, fill: ink, fontSize: 11, width: shape.width - 4, overflow: "break" } };
    const hasRoom = shape.width > 40 && shape.height > 14;
    return { type: "rect", shape, style: { fill }, ...(hasRoom ? { textContent: content, textConfig: { position: "inside" } } : {}) };
  };
  return { type: "custom", renderItem, data, encode: { x: 0, y: 1 }, clip: true, silent: true };
}

function heatColor(share) {
  const stops = [[253, 231, 37], [94, 201, 98], [33, 145, 140], [59, 82, 139], [68, 1, 84]];
  const at = Math.min(0.9999, Math.max(0, share)) * (stops.length - 1);
  const [from, to] = [stops[Math.floor(at)], stops[Math.floor(at) + 1]];
  return `rgb(${from.map((v, i) => Math.round(v + (to[i] - v) * (at % 1))).join(",")})`;
}
