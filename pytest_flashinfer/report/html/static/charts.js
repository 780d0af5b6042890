// Charts: latency over an axis, and speedups as a heat map. plotly.js is unpacked when the first one is looked at.
const LINES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8c564b", "#7f7f7f"];
const MARKS = ["circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down", "star"];
const SHOWN_LINES = 6; // at first; the others are a click away
const MAX_HEAT_ROWS = 60, MAX_HEAT_COLUMNS = 400;
const STEPS = [0, 0.25, 0.5, 0.75, 1]; // of the colours --r0 to --r4, from slow to fast
const BEYOND = 3; // log2 of the speedup at which the colours end
const coarse = matchMedia("(pointer: coarse)").matches;

// plotly.js takes a little HTML in labels: it must not find any in a name.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();

let library = null;
function plotly() {
  library = library || unpack("plotly").then((text) => {
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
    return window.Plotly || window.moduleName;
  });
  return library;
}

const seen = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((each) => each.isIntersecting)) {
    seen.unobserve(entry.target);
    entry.target.draw();
  }
}, { rootMargin: "200px" });

// A chart that draws itself when it comes into view, and again when `redraw` is called. Arrow keys read its points.
function chart(label, describe) {
  const place = h("div", { class: "chart", tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": label });
  place.readout = h("p", { class: "readout", role: "status", hidden: true });
  let drawn = null, cursor = null;
  place.draw = async () => {
    const library = await plotly();
    drawn = describe(place.clientWidth);
    cursor = null;
    place.style.height = `${drawn.layout.height}px`;
    await library.react(place, drawn.traces, { ...look(), ...drawn.layout }, { displayModeBar: false, responsive: true, scrollZoom: false });
    place.dataset.drawn = drawn.traces.length;
  };
  place.redraw = () => (drawn ? place.draw() : undefined);
  place.addEventListener("keydown", async (event) => {
    if (!drawn || !event.key.startsWith("Arrow") || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    cursor = drawn.move(cursor, { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key]);
    if (!cursor) return;
    place.readout.textContent = drawn.say(cursor).replace(/\n/g, " · ");
    place.readout.hidden = false;
    (await plotly()).Fx.hover(place, drawn.mark(cursor), "xy");
  });
  place.addEventListener("blur", async () => {
    place.readout.hidden = true;
    if (cursor) (await plotly()).Fx.unhover(place);
  });
  seen.observe(place);
  return place;
}

function look() {
  const line = css("--line"), ink = css("--ink"), dim = css("--dim");
  const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: dim }, automargin: true, ticks: "outside", tickcolor: line, fixedrange: coarse };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
    font: { family: css("--sans"), size: 12, color: ink }, margin: { l: 56, r: 12, t: 12, b: 44 },
    hoverlabel: { align: "left", bgcolor: css("--raised"), bordercolor: dim, font: { color: ink, size: 12 } },
    dragmode: coarse ? false : "zoom", xaxis: axis, yaxis: { ...axis },
  };
}

// 1, 2 and 5 of every decade within a range, fewer where there are many decades.
function logTicks(values, show) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const decades = Math.log10(high / low);
  const steps = decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
    for (const step of steps) found.push(Number((step * 10 ** power).toPrecision(3)));
  }
  return { tickvals: found, ticktext: found.map(show) };
}

function padded(values) {
  const [low, high] = [Math.log10(Math.min(...values)), Math.log10(Math.max(...values))];
  const more = Math.max(0.04 * (high - low), 0.02);
  return [low - more, high + more];
}

// Medians over the workloads that share a size: the other axes differ.
function points(pairs) {
  const groups = new Map();
  for (const [x, y] of pairs) {
    if (x !== null && y !== null && x > 0) groups.set(x, [...(groups.get(x) || []), y]);
  }
  return [...groups].sort((one, other) => one[0] - other[0]).map(([x, ys]) => ({ x, y: median(ys), count: ys.length, low: Math.min(...ys), high: Math.max(...ys) }));
}

function lineOf(name, found, axis, style) {
  const text = found.map((point) => `${shorter(name, 60)}\n${shorter(axis, 30)} = ${point.x}\n${time(point.y)}${point.count > 1 ? ` (median of ${point.count} workloads, ${time(point.low)} to ${time(point.high)})` : ""}`);
  return {
    type: "scatter", mode: "lines+markers", x: found.map((point) => point.x), y: found.map((point) => point.y),
    name: plain(name), said: text, text: text.map((each) => plain(each).replace(/\n/g, "<br>")), hoverinfo: "text", ...style,
  };
}

function latencyPicture(board, numbers, solutions, axis, logarithmic) {
  return (width) => {
    const at = numbers.axes.indexOf(axis);
    const size = (place) => (at < 0 ? place + 1 : numbers.sizes[at][place]);
    const label = at < 0 ? "workload" : axis;
    const traces = solutions.map(({ solution, style }) => lineOf(solution.name, points(solution.at.map((place, number) => [size(place), solution.us[number]])), label, style));
    if (board.roofline) {
      const limit = points(board.roofline.map(([place, us]) => [size(place), us]));
      traces.push({ ...lineOf("Roofline: the card's limit", limit, label, { line: { color: css("--ink"), width: 1.5, dash: "dash" } }), mode: "lines" });
    }
    const [xs, ys] = [traces.flatMap((trace) => trace.x), traces.flatMap((trace) => trace.y)];
    const base = look();
    const kind = (values, title, show) => (logarithmic && values.length
      ? { type: "log", range: padded(values), ...logTicks(values, show) }
      : { type: "linear", rangemode: "tozero", nticks: width < 500 ? 5 : 8 });
    const layout = {
      height: width < 500 ? 300 : 380, hoverdistance: 30,
      xaxis: { ...base.xaxis, ...kind(xs, label, (size) => size.toLocaleString("en")), title: { text: plain(at < 0 ? "workload, small to large" : shorter(axis, 30)), standoff: 8 } },
      yaxis: { ...base.yaxis, ...kind(ys, "latency", time), ...(logarithmic ? {} : { ticksuffix: " µs" }), title: { text: "latency", standoff: 8 } },
    };
    const move = (cursor, [right, down]) => {
      const filled = traces.flatMap((trace, number) => (trace.x.length ? [number] : []));
      if (!filled.length) return null;
      if (!cursor) return { curveNumber: filled[0], pointNumber: 0 };
      const line = filled[(filled.indexOf(cursor.curveNumber) + down + filled.length) % filled.length];
      return { curveNumber: line, pointNumber: Math.max(0, Math.min(traces[line].x.length - 1, cursor.pointNumber + right)) };
    };
    return { traces, layout, move, mark: (cursor) => [cursor], say: (cursor) => traces[cursor.curveNumber].said[cursor.pointNumber] };
  };
}

function heatPicture(numbers, solutions) {
  return (width) => {
    const rows = solutions.slice(0, MAX_HEAT_ROWS);
    const columns = Math.min(numbers.uuids.length, MAX_HEAT_COLUMNS);
    const grid = () => rows.map(() => Array(columns).fill(null));
    const [speed, failed, said] = [grid(), grid(), grid()];
    rows.forEach((solution, row) => solution.at.forEach((place, number) => {
      if (place >= columns) return;
      const status = solution.status ? solution.status[number] : "PASSED";
      const ratio = solution.times[number];
      if (status !== "PASSED") failed[row][place] = 1;
      else if (ratio) speed[row][place] = Math.max(-BEYOND, Math.min(BEYOND, Math.log2(ratio)));
      const told = status !== "PASSED" ? status : ratio ? `${times(ratio)} (${time(solution.us[number])})` : "passed, not timed";
      said[row][place] = `${shorter(solution.name, 60)}\n${workloadName(numbers, place)}\n${told}`;
    }));
    const text = said.map((row) => row.map((each) => (each ? plain(each).replace(/\n/g, "<br>") : "")));
    const common = { type: "heatmap", showscale: false, text, hoverinfo: "text", xgap: columns > 120 ? 0 : 1, ygap: 1, hoverongaps: false };
    const label = width < 500 ? 14 : 28;
    const base = look();
    const layout = {
      height: 64 + rows.length * (rows.length > 30 ? 16 : 22), margin: { l: 40, r: 12, t: 8, b: 44 },
      xaxis: { ...base.xaxis, showgrid: false, zeroline: false, ticks: "", ...someTicks(numbers, columns, width < 500 ? 5 : 12), title: { text: plain(`workloads, small to large${numbers.axes.length ? `, by ${shorter(numbers.axes[0], 20)}` : ""}`), standoff: 8 } },
      yaxis: { ...base.yaxis, showgrid: false, zeroline: false, autorange: "reversed", ticks: "", tickvals: rows.map((_, row) => row), ticktext: rows.map((solution) => plain(shorter(solution.name, label))) },
    };
    const traces = [
      { ...common, z: speed, colorscale: STEPS.map((step, at) => [step, css(`--r${at}`)]), zmin: -BEYOND, zmax: BEYOND },
      { ...common, z: failed, colorscale: [[0, css("--failed")], [1, css("--failed")]], zmin: 0, zmax: 1 },
    ];
    const move = (cursor, [right, down]) => {
      const { row, column } = cursor || { row: -down, column: -right };
      return { row: Math.max(0, Math.min(rows.length - 1, row + down)), column: Math.max(0, Math.min(columns - 1, column + right)) };
    };
    const say = ({ row, column }) => said[row][column] || `${rows[row].name}\n${workloadName(numbers, column)}\nnot run`;
    return { traces, layout, move, mark: ({ row, column }) => ({ xval: column, yval: row }), say };
  };
}

// The first axis' size under some of the columns.
function someTicks(numbers, columns, most) {
  if (!numbers.axes.length) return { showticklabels: false };
  const step = Math.max(1, Math.ceil(columns / most));
  const tickvals = Array.from({ length: Math.ceil(columns / step) }, (_, at) => at * step);
  return { tickvals, ticktext: tickvals.map((place) => (numbers.sizes[0][place] ?? 0).toLocaleString("en")), tickangle: 0 };
}

function workloadName(numbers, place) {
  const sizes = numbers.axes.map((name, axis) => [name, numbers.sizes[axis][place]]).filter((pair) => pair[1] !== null);
  return `${shorter(sizes.map(([name, size]) => `${name} = ${size}`).join(", "), 120) || "no axes"} · ${shorter(numbers.uuids[place], 9)}`;
}
