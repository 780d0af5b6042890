// What a definition shows beside its tables: charts, failures, sources, conversations. Made when it is first opened.
const LISTED = 12; // failures and solutions of a list, until somebody asks for all
const LEADERS = 15; // rows of a leaderboard, until then
const opened = new Map();

async function openChapter(at) {
  if (!opened.has(at)) opened.set(at, build(at));
  const chapter = await opened.get(at);
  chapter.update();
  return chapter;
}

async function build(at) {
  const [numbers, texts] = await Promise.all([data(`numbers-${at}`), data(`texts-${at}`)]);
  const boards = numbers.boards.map((board, number) => boardParts(byId(`d${at}-b${number}`), board, numbers, texts, texts.logs[number] || []));
  const list = solutionParts(byId(`d${at}`).querySelector(".solutions"), numbers, texts);
  const update = () => [...boards, list].forEach((part) => part.update());
  return { update, show: list.show };
}

function boardParts(section, board, numbers, texts, logs) {
  const live = section.querySelector(".live");
  const parts = [latencyPart(board, numbers), heatPart(board, numbers), tablePart(board, numbers), failuresPart(board, texts, logs)];
  live.replaceChildren(...parts.map((part) => part.element));
  live.hidden = false;
  const admits = rowsShown(section);
  const fold = foldRows(section);
  return { update: () => {
    fold();
    parts.forEach((part) => part.update(board.solutions.filter((solution) => admits(solution.name))));
  } };
}

// The leaderboard's own rows say who is filtered out: there is one filter.
function rowsShown(section) {
  const rows = new Map([...section.querySelectorAll("tbody tr")].map((row) => [row.dataset.solution, row]));
  return (name) => !(rows.get(name) || {}).hidden;
}

// Folds the rows after the first ones away; those that a filter hides do not count.
function foldRows(section) {
  let all = false;
  const rows = [...section.querySelectorAll("tbody tr")];
  const button = h("button", { type: "button", click: () => { all = true; fold(); } });
  section.querySelector(".scroll").after(button);
  const fold = () => {
    const shown = rows.filter((row) => !row.hidden);
    shown.forEach((row, at) => row.classList.toggle("folded", !all && at >= LEADERS));
    button.hidden = all || shown.length <= LEADERS;
    button.textContent = `Show all ${shown.length.toLocaleString("en")} solutions`;
  };
  return fold;
}

function figure(title, hint, ...children) {
  return h("figure", { class: "picture" }, h("figcaption", {}, h("h4", {}, title), h("p", { class: "dim" }, hint)), ...children);
}

function choice(label, values, changed) {
  const select = h("select", { change: changed }, values.map((value, at) => h("option", { value: at }, value)));
  return { element: h("label", {}, `${label} `, select), value: () => values[select.value] };
}

function latencyPart(board, numbers) {
  const timed = board.solutions.filter((solution) => solution.us.some((us) => us !== null));
  const styles = new Map(timed.map((solution, at) => [solution.name, {
    line: { color: LINES[at % LINES.length], width: 2, dash: ["solid", "dot", "dashdot"][Math.floor(at / LINES.length) % 3] },
    marker: { symbol: MARKS[at % MARKS.length], size: 7, color: LINES[at % LINES.length] },
  }]));
  const on = new Set(timed.slice(0, SHOWN_LINES).map((solution) => solution.name));
  let shown = timed;
  const varying = numbers.axes.filter((_, axis) => new Set(numbers.sizes[axis]).size > 1);
  const axes = [...varying, "all workloads"];
  const draw = () => place.redraw();
  const axis = choice("Axis", axes, draw);
  const log = h("input", { type: "checkbox", checked: true, change: draw });
  const picture = (width) => {
    const solutions = shown.filter((solution) => on.has(solution.name)).map((solution) => ({ solution, style: styles.get(solution.name) }));
    return latencyPicture(board, numbers, solutions, axis.value(), log.checked)(width);
  };
  const place = chart(`Latency of the solutions on ${board.card}; arrow keys read the points`, picture);
  const legend = h("div", { class: "legend", role: "group", "aria-label": "Lines" });
  const button = (solution) => h("button", { type: "button", "aria-pressed": String(on.has(solution.name)), click: (event) => {
    const now = !on.delete(solution.name) && Boolean(on.add(solution.name));
    event.currentTarget.setAttribute("aria-pressed", String(now));
    draw();
  } }, swatch(styles.get(solution.name)), shorter(solution.name, 40));
  const roof = board.roofline ? h("span", { class: "key" }, h("i", { class: "dash" }), "roofline: the card's limit") : null;
  const update = (solutions) => {
    shown = timed.filter((solution) => solutions.includes(solution));
    if (!shown.some((solution) => on.has(solution.name))) shown.slice(0, SHOWN_LINES).forEach((solution) => on.add(solution.name));
    legend.replaceChildren(...shown.map(button), ...(roof ? [roof] : []));
    element.hidden = !shown.length;
    draw();
  };
  const element = figure("Latency", "Lower is better. Arrow keys read the points; drag to zoom, double-click to go back.",
    h("div", { class: "controls" }, axis.element, h("label", {}, log, " log axes")), place, place.readout, legend);
  return { element, update };
}

function swatch(style) {
  const made = h("i", { class: "swatch", "aria-hidden": "true" });
  made.style.background = style.line.color;
  return made;
}

function heatPart(board, numbers) {
  let shown = board.solutions;
  const place = chart(`Speedup of each solution on each workload on ${board.card}; arrow keys read the cells`, (width) => heatPicture(numbers, shown)(width));
  const keys = h("div", { class: "legend", "aria-hidden": "true" },
    h("span", { class: "key" }, "slower ⅛×", h("i", { class: "ramp" }), "8× faster than the reference"),
    h("span", { class: "key" }, h("i", { class: "swatch failed" }), "failed"),
    h("span", { class: "key" }, h("i", { class: "swatch empty" }), "not timed"));
  const cut = h("p", { class: "dim" });
  const element = figure("Speedup by workload", "One row a solution, one column a workload. Arrow keys read the cells.", place, place.readout, keys, cut);
  const update = (solutions) => {
    shown = solutions;
    element.hidden = !shown.length || !numbers.uuids.length;
    const rows = shown.length > MAX_HEAT_ROWS ? [`the best ${MAX_HEAT_ROWS} of ${shown.length} solutions`] : [];
    const columns = numbers.uuids.length > MAX_HEAT_COLUMNS ? [`the smallest ${MAX_HEAT_COLUMNS} of ${numbers.uuids.length} workloads`] : [];
    cut.textContent = rows.length || columns.length ? `Shown: ${[...rows, ...columns].join(" and ")}.` : "";
    place.redraw();
  };
  return { element, update };
}

// The same numbers without a chart, for those who cannot or would rather not use one.
function tablePart(board, numbers) {
  let shown = [];
  const body = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers by workload" });
  const fill = () => {
    if (!element.open) return;
    const solutions = shown.slice(0, MAX_HEAT_ROWS);
    const cells = solutions.map((solution) => new Map(solution.at.map((place, at) => [place, at])));
    const head = h("tr", {}, h("th", { scope: "col" }, "Workload"), solutions.map((solution) => h("th", { scope: "col", class: "n" }, solution.name)));
    const rows = numbers.uuids.slice(0, MAX_HEAT_COLUMNS).map((_, place) => h("tr", {}, h("th", { scope: "row" }, workloadName(numbers, place)), solutions.map((solution, row) => {
      const at = cells[row].get(place);
      if (at === undefined) return h("td", { class: "n dim" }, "–");
      const status = solution.status ? solution.status[at] : "PASSED";
      if (status !== "PASSED") return h("td", { class: "n" }, h("span", { class: "status" }, status));
      return h("td", { class: "n" }, time(solution.us[at]), h("span", { class: "dim" }, ` ${times(solution.times[at])}`));
    })));
    body.replaceChildren(h("table", { class: "grid" }, h("thead", {}, head), h("tbody", {}, rows)));
  };
  const element = h("details", { class: "panel", toggle: fill }, h("summary", {}, "Numbers as a table"), body);
  const update = (solutions) => {
    shown = solutions;
    element.hidden = !shown.length || !numbers.uuids.length;
    fill();
  };
  return { element, update };
}

// Shows the first of many things, and the rest at the press of a button.
function shortList(make) {
  const list = h("div", { class: "list" });
  const fill = (things, limit) => {
    const more = things.length - limit;
    list.replaceChildren(...things.slice(0, limit).map(make), ...(more > 0 ? [h("button", { type: "button", click: () => fill(things, things.length) }, `Show ${more.toLocaleString("en")} more`)] : []));
  };
  return { element: list, fill };
}

function failuresPart(board, texts, logs) {
  const list = shortList(([failure, log]) => failureOf(board, failure, log, texts.note));
  const title = h("h4", {}, "Failures");
  const element = h("section", { class: "failures" }, title, h("p", { class: "dim" }, "Of each solution and verdict, the smallest case."), list.element);
  const update = (solutions) => {
    const shown = board.failures.map((failure, at) => [failure, logs[at]]).filter(([failure]) => solutions.includes(board.solutions[failure.solution]));
    element.hidden = !shown.length;
    title.textContent = `Failures (${shown.length.toLocaleString("en")})`;
    list.fill(shown, LISTED);
  };
  return { element, update };
}

function failureOf(board, failure, log, note) {
  const where = sizesOf(failure.axes) || (failure.workload ? `workload ${failure.workload}` : "sizes not stated");
  const cases = [failure.count && counted(failure.count, "workload"), failure.drawn && "sizes that were drawn"];
  const told = (log || "").split("\n").find((line) => line.includes(failure.status)) || "";
  const headline = told.replace(/^E?\s*(?:[\w.]*\.)?/, "").replace(/^Failed:\s*/, "");
  return h("details", { class: "panel failure" },
    h("summary", {},
      h("span", { class: "strong" }, board.solutions[failure.solution].name), " ", h("span", { class: "status" }, failure.status),
      h("span", { class: "dim" }, ` ${cases.filter(Boolean).join(" and ")}; smallest: `), h("span", { class: "mono" }, where),
      headline && headline !== failure.status ? h("span", { class: "headline-of" }, shorter(headline, 200)) : null),
    h("pre", { class: "log", tabindex: 0 }, log || note || "It left no log."));
}

function solutionParts(place, numbers, texts) {
  const boards = numbers.boards.map((board, number) => [board, rowsShown(place.parentElement.querySelectorAll(".board")[number])]);
  const all = [...new Map(boards.flatMap(([board]) => board.solutions.map((solution) => [solution.name, solution]))).values()];
  const list = shortList((solution) => solutionOf(solution, texts.solutions[solution.name] || {}, texts.note));
  place.replaceChildren(h("h3", {}, "Sources and conversations"), list.element);
  place.hidden = false;
  let shown = all;
  const update = () => {
    shown = all.filter((solution) => boards.some(([board, admits]) => board.solutions.some((each) => each.name === solution.name) && admits(solution.name)));
    list.fill(shown, LISTED);
  };
  const show = (name) => {
    const find = () => [...list.element.querySelectorAll("details.solution")].find((each) => each.dataset.name === name);
    if (!find()) list.fill(shown, shown.length);
    const found = find();
    if (!found) return;
    found.open = true;
    found.querySelector("summary").focus({ preventScroll: true });
    found.scrollIntoView({ block: "start" });
  };
  return { update, show };
}

function solutionOf(solution, text, note) {
  const body = h("div", { class: "inside" });
  const fill = () => { if (made.open && !body.childElementCount) body.append(...insides(text, note)); };
  const facts = [solution.author, text.language, text.turns && text.turns.length ? `${counted(text.turns.length, "turn")} of conversation` : null];
  const made = h("details", { class: "panel solution", "data-name": solution.name, toggle: fill },
    h("summary", {}, h("span", { class: "strong" }, solution.name), h("span", { class: "dim" }, facts.filter(Boolean).map((fact) => ` · ${fact}`).join(""))), body);
  return made;
}

function insides(text, note) {
  const parts = [];
  if (text.description) parts.push(h("p", {}, text.description));
  if (text.files) parts.push(h("h5", {}, "Source"), h("p", { class: "dim" }, "entry point ", h("span", { class: "mono" }, text.entry)), ...sourceFiles(text.files));
  if (text.turns && text.turns.length) parts.push(h("h5", {}, "How it came to be"), conversation(text.turns));
  return parts.length ? parts : [h("p", { class: "dim" }, note || "Its file was not given: name the folder with --solutions to see the source here.")];
}
