"use strict";
// Numbers as texts, exactly as benchax/units.py writes them, and the lists of numbers that html.py encodes.

const UNITS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6], ["ns", 1e-9]];
const SIZES = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10], ["B", 1]];
const PREFIXES = [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 1]];
const CARRIES = 0.9995 - 1e-9;

function writeNumber(value, digits = 3) {
  if (!Number.isFinite(value) || value === 0) return value ? String(value) : "0";
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  const rounded = value.toFixed(Math.min(100, decimals));
  const length = rounded.replace(/^-/, "").replace(".", "").replace(/^0+/, "").length;
  return decimals && length > digits ? value.toFixed(decimals - 1) : rounded;
}

function findUnit(value, units, otherwise) {
  return units.find(([, scale]) => Math.abs(value) >= CARRIES * scale) || otherwise;
}

function writeSeconds(value, digits = 3) {
  const [unit, scale] = findUnit(value, UNITS, value ? ["ns", 1e-9] : ["s", 1]);
  return `${writeNumber(value / scale, digits)} ${unit}`;
}

function writeSize(value, digits = 3) {
  const [unit, scale] = findUnit(value, SIZES, ["B", 1]);
  return unit === "B" ? `${value.toFixed(0)} B` : `${writeNumber(value / scale, digits)} ${unit}`;
}

function writeCount(value, what = "", digits = 3) {
  const [prefix, scale] = findUnit(value, PREFIXES, ["", 1]);
  const text = !prefix && Number.isInteger(value) ? String(value) : writeNumber(value / scale, digits);
  return `${text} ${prefix}${what}`.trimEnd();
}

// As `describe_value` of benchax/reporting/document.py.
function writeValue(value, quantity, digits = 3) {
  if (value === null || value === undefined) return "not measured";
  if (quantity === "seconds") return writeSeconds(value, digits);
  if (quantity === "bytes") return writeSize(value, digits);
  if (quantity === "change") {
    const share = Number((100 * (value - 1)).toFixed(3));
    return `${share > 0 ? "+" : ""}${share} %`;
  }
  return writeCount(value, quantity === "flop" ? "FLOP" : "", digits);
}

function decodeNumbers(coded) {
  if (!coded) return [];
  if (Array.isArray(coded)) return coded;
  return coded.v.map((v) => (v === null ? null : Number(`${v}e${coded.e}`)));
}

// The data of a figure: packed JSON.
async function readData(figure) {
  const bytes = Uint8Array.from(atob(figure.querySelector("script").textContent), (c) => c.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(unpacked).json();
}
