// Sources with numbered, coloured lines; conversations turn by turn.
const PYTHON = "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try while with yield";
const CPP = "alignas auto bool break case char class const constexpr continue default delete do double else enum explicit extern false float for if inline int long namespace new nullptr operator private public return short signed sizeof static struct switch template this true typedef typename union unsigned using void volatile while __global__ __device__ __shared__ __host__ __restrict__ __syncthreads half";
const KEYWORDS = { python: new Set(PYTHON.split(" ")), cpp: new Set(CPP.split(" ")) };
const TOKENS = {
  python: /(#[^\n]*)|((?:[rbfu]{0,2})(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|\b(\d[\w.]*)|([A-Za-z_@]\w*)/g,
  cpp: /(\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)|^[ \t]*#[^\n]*)|("(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)|\b(\d[\w.]*)|([A-Za-z_]\w*)/gm,
};
const KINDS = ["comment", "string", "number"];

function pieces(text, dialect) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(TOKENS[dialect])) {
    const word = match[4];
    const kind = word ? (KEYWORDS[dialect].has(word) ? "keyword" : "") : KINDS[match.slice(1, 4).findIndex(Boolean)];
    if (!kind) continue;
    if (match.index > end) found.push(["", text.slice(end, match.index)]);
    found.push([kind, match[0]]);
    end = match.index + match[0].length;
  }
  found.push(["", text.slice(end)]);
  return found;
}

function codeBlock(path, text) {
  const dialect = /\.py$/.test(path) ? "python" : "cpp";
  const code = h("code");
  let line = h("span", { class: "line" });
  for (const [kind, piece] of pieces(text.replace(/\n$/, ""), dialect)) {
    piece.split("\n").forEach((part, number) => {
      if (number) {
        line.append("\n");
        code.append(line);
        line = h("span", { class: "line" });
      }
      if (part) line.append(kind ? h("span", { class: `t-${kind}` }, part) : part);
    });
  }
  code.append(line);
  return h("pre", { class: "code", tabindex: 0, role: "region", "aria-label": `Source of ${path}` }, code);
}

function sourceFiles(files) {
  return files.map(([path, text, cut]) =>
    h("figure", { class: "file" },
      h("figcaption", {}, h("span", { class: "mono" }, path), h("button", { type: "button", class: "quiet", click: (event) => copy(event.target, text) }, "Copy")),
      codeBlock(path, text),
      cut ? h("p", { class: "dim" }, `${cut.toLocaleString("en")} more characters were left out of this report.`) : null));
}

async function copy(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Cannot copy here";
  }
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

const SPEAKERS = { user: "User", assistant: "Assistant", system: "System", developer: "Developer", tool: "Tool", mcp: "MCP" };

function foldable(label, text, open) {
  return h("details", { class: "fold", open }, h("summary", {}, label), h("pre", { tabindex: 0 }, text));
}

function turnOf(turn) {
  const speaker = SPEAKERS[turn.role] || turn.role;
  const long = turn.role === "tool" || turn.role === "mcp";
  const calls = (turn.calls || []).map(([name, words]) =>
    h("div", { class: "call" }, h("p", {}, long ? "Asked of " : "Calls ", h("code", {}, name)), words ? h("pre", { tabindex: 0 }, words) : null));
  const text = turn.text || "";
  return h("li", { class: `turn ${SPEAKERS[turn.role] ? turn.role : "other"}` },
    h("p", { class: "speaker" }, speaker, turn.model ? h("span", { class: "dim" }, ` ${turn.model}`) : null),
    turn.thought ? foldable("Reasoning", turn.thought, false) : null,
    long ? calls : null,
    text && long ? foldable(`Result: ${shorter(text.trim().split("\n")[0], 80)}`, text, text.length < 600) : null,
    text && !long ? h("p", { class: "said" }, text) : null,
    long ? null : calls);
}

const conversation = (turns) => h("ol", { class: "turns" }, turns.map(turnOf));
