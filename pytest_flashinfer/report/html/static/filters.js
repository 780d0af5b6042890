// Filters hide rows; the overview then names the first right solution that is left. Nothing is averaged anew.
const KEYS = ["op", "author", "card"];
const chapters = [...document.querySelectorAll("section.chapter")];
const overview = [...document.querySelectorAll("#overview-table tbody tr[data-board]")].map((row) => {
  const [chapter, board] = row.dataset.board.split("-").map(Number);
  const section = byId(`d${chapter}-b${board}`);
  const leaders = [...section.querySelectorAll("tbody tr")].map((each) => ({ row: each, name: each.dataset.solution.toLowerCase() }));
  return { row, chapter, section, leaders };
});

function chosen() {
  const values = Object.fromEntries(KEYS.map((key) => [key, byId(`filter-${key}`).value]));
  return { ...values, text: byId("filter-text").value.trim().toLowerCase() };
}

function applyFilters() {
  const wanted = chosen();
  const fits = (key, value) => wanted[key] === "*" || wanted[key] === `=${value}`;
  const left = new Set();
  for (const { row, chapter, section, leaders } of overview) {
    const home = chapters[chapter];
    const named = !wanted.text || home.dataset.name.toLowerCase().includes(wanted.text);
    const admitted = fits("op", home.dataset.op) && fits("card", section.dataset.card);
    let count = 0;
    for (const { row: leader, name } of leaders) {
      leader.hidden = !(fits("author", leader.dataset.author) && (named || name.includes(wanted.text)));
      count += leader.hidden ? 0 : 1;
    }
    row.hidden = section.hidden = !(admitted && count);
    if (!row.hidden) {
      left.add(chapter);
      retell(row, leaders.map((each) => each.row).filter((each) => !each.hidden));
    }
  }
  chapters.forEach((chapter, at) => { chapter.dataset.left = left.has(at); });
  document.querySelector("#overview .none").hidden = left.size > 0 || !chapters.length;
  byId("filter-count").textContent = `${left.size} of ${counted(chapters.length, "definition")}`;
  byId("filter-reset").disabled = !wanted.text && KEYS.every((key) => wanted[key] === "*");
}

function retell(row, leaders) {
  const right = leaders.filter((leader) => leader.dataset.state === "good");
  const best = leaders[0] && right[0] === leaders[0] && leaders[0].querySelector(".bar") ? leaders[0] : null;
  const cell = (key) => row.querySelector(`[data-cell="${key}"]`);
  cell("right").textContent = `${right.length} of ${leaders.length}`;
  cell("solution").replaceChildren(...breakable(best ? best.dataset.solution : "none"));
  cell("solution").classList.toggle("dim", !best);
  for (const key of ["author", "latency", "speedup", "roofline"]) {
    cell(key).textContent = best ? best.querySelector(`[data-cell="${key}"]`).textContent : "–";
  }
}
