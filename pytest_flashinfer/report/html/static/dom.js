// Elements are made node by node; text only ever becomes a text node. No name, source or log is read as HTML.
const root = document.documentElement;
const byId = (id) => document.getElementById(id);

function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

async function unpack(id) {
  const bytes = Uint8Array.from(atob(byId(id).textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const unpacked = new Map();
function data(id) {
  if (!unpacked.has(id)) unpacked.set(id, unpack(id).then(JSON.parse));
  return unpacked.get(id);
}

const UNITS = [["s", 1e6], ["ms", 1e3], ["µs", 1], ["ns", 1e-3]];
function time(us) {
  if (us === null || us === undefined) return "–";
  const rounded = Number(us.toPrecision(3)); // 999.7 µs is 1 ms
  const [unit, scale] = UNITS.find((pair) => rounded >= pair[1]) || UNITS[3];
  const shown = rounded / scale;
  return `${shown >= 1000 ? shown.toFixed(0) : Number(shown.toPrecision(3))} ${unit}`;
}

function times(ratio) {
  if (ratio === null || ratio === undefined) return "–";
  const places = ratio > 0 ? 1 - Math.floor(Math.log10(ratio)) : 2; // a small one has two digits all the same
  return `${ratio.toFixed(Math.min(100, Math.max(2, places)))}×`;
}
const counted = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
const shorter = (text, limit) => (text.length > limit ? `${text.slice(0, limit - 1)}…` : text);
const breakable = (name) => name.split("_").flatMap((part, at) => (at ? ["_", h("wbr"), part] : [part]));
const sizesOf = (axes) => Object.entries(axes).map(([name, size]) => `${name} = ${size}`).join(", ");

function median(values) {
  const sorted = [...values].sort((one, other) => one - other);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
