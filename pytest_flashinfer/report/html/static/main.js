// Which part is shown: the overview, or the definition that the address names as `#d3` or `#d3/solution`.
let current = null;

function neighbours(at) {
  const left = chapters.flatMap((chapter, number) => (chapter.dataset.left === "true" ? [number] : []));
  return { prev: left.filter((number) => number < at).pop(), next: left.find((number) => number > at) };
}

function linkNeighbours(at) {
  for (const [rel, goal] of Object.entries(neighbours(at))) {
    const link = chapters[at].querySelector(`[rel="${rel}"]`);
    if (goal === undefined) link.removeAttribute("href");
    else link.href = `#d${goal}`;
    link.title = goal === undefined ? "" : chapters[goal].dataset.name;
  }
}

async function route(focus) {
  const match = /^#d(\d+)(?:\/(.*))?$/.exec(location.hash);
  const at = match && chapters[match[1]] ? Number(match[1]) : null;
  const moved = at !== current;
  current = at;
  const shown = at === null ? byId("overview") : chapters[at];
  for (const section of [byId("overview"), ...chapters]) section.classList.toggle("current", section === shown);
  if (at === null) {
    if (focus && moved) arrive(shown);
    return;
  }
  linkNeighbours(at);
  if (moved && focus) arrive(shown);
  try {
    const chapter = await openChapter(at);
    if (match[2]) chapter.show(decoded(match[2]));
  } catch (error) {
    shown.append(h("p", { class: "note", role: "alert" }, `This browser cannot unpack the charts and sources (${error.message}); the tables are complete.`));
    throw error;
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function arrive(section) {
  scrollTo(0, 0);
  section.querySelector("h2").focus({ preventScroll: true });
}

const filters = byId("filters");
function filtered() {
  applyFilters();
  if (current === null) return;
  linkNeighbours(current);
  opened.get(current)?.then((chapter) => chapter.update());
}

const THEMES = ["system", "light", "dark"];
function setTheme(name) {
  if (name === "system") delete root.dataset.theme;
  else root.dataset.theme = name;
  byId("theme").textContent = `Theme: ${name}`;
  document.querySelectorAll(".chart").forEach((each) => each.redraw());
}

function start() {
  document.body.classList.add("live-page");
  for (const shy of [filters, byId("theme"), ...document.querySelectorAll(".trail")]) shy.hidden = false;
  filters.addEventListener("input", filtered);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => setTimeout(filtered));
  byId("theme").addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(root.dataset.theme || "system") + 1) % THEMES.length]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme(root.dataset.theme || "system"));
  addEventListener("hashchange", () => route(true));
  applyFilters();
  route(false);
}

start();
