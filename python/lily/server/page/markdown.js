// A small part of Markdown as DOM nodes: code, headings, lists, bold, italics. Text stays text: nodes
// are made one by one and never from markup, and there are no links and no images. What is not
// understood is shown as it was written. This file knows nothing of chats.

// Models can repeat themselves for ever, so none of these may take more than linear time.
const FENCE = /^ {0,3}(`{3,}|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(\S.*)$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const INLINE =
  /(?<!`)(`{1,3})(?!`)(.+?)(?<!`)\1(?!`)|\*\*(?=\S)(.+?)\*\*|(?<![\w*])\*(?=[^\s*])([^*\n]+)\*(?![\w*])/gs;
const MAX_INDENT = 16;

/**
 * Show `source` in `root`. Called again with more text, it leaves the blocks that have not changed,
 * so that a long answer costs no more with every token, and a selection in it stays.
 */
export function show(root, source) {
  const found = blocks(source);
  found.forEach((block, index) => {
    const key = `${block.kind}\n${block.info ?? ""}\n${block.text}`;
    const old = root.children[index];
    if (old && old.shownFrom === key) return;
    const node = makers[block.kind](block);
    node.shownFrom = key;
    if (old) old.replaceWith(node);
    else root.append(node);
  });
  while (root.children.length > found.length) root.lastElementChild.remove();
}

/** Blocks of `source`: {kind, text, info}. A fence that is not closed yet is code to the end. */
export function blocks(source) {
  const found = [];
  const lines = source.split("\n");
  for (let at = 0; at < lines.length; ) {
    const fence = opening(lines[at]);
    if (fence) {
      const code = [];
      const closing = new RegExp(`^ {0,3}${fence.mark}{${fence.length},}\\s*$`);
      for (at++; at < lines.length && !closing.test(lines[at]); at++) code.push(lines[at]);
      at++;
      found.push({kind: "code", info: fence.language, text: code.join("\n")});
    } else if (!lines[at].trim()) {
      at++;
    } else if (HEADING.test(lines[at])) {
      const [, marks, text] = HEADING.exec(lines[at++]);
      found.push({kind: "heading", info: marks.length, text});
    } else {
      const kind = ITEM.test(lines[at]) ? "list" : "paragraph";
      const begin = at++;
      while (at < lines.length && goesOn(kind, lines, at)) at++;
      found.push({kind, text: lines.slice(begin, at).join("\n")});
    }
  }
  return found;
}

function opening(line) {
  const [, marks, info] = FENCE.exec(line) ?? [];
  if (!marks || (marks[0] === "`" && info.includes("`"))) return null;
  return {mark: marks[0], length: marks.length, language: info.trim().split(/\s/)[0]};
}

function goesOn(kind, lines, at) {
  const line = lines[at];
  if (opening(line) || HEADING.test(line)) return false;
  if (kind === "list") {
    if (!line.trim()) return ITEM.test(lines[at + 1] ?? "");
    return ITEM.test(line) || /^\s/.test(line);
  }
  return line.trim() !== "" && !ITEM.test(line);
}

const makers = {
  paragraph: (block) => filled("p", block.text),

  heading: (block) => filled(`h${Math.min(block.info + 2, 6)}`, block.text),

  code(block) {
    const figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    const copy = document.createElement("button");
    copy.type = "button";
    copy.textContent = "Copy";
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(block.text);
        copy.textContent = "Copied";
      } catch {
        copy.textContent = "Not allowed";
      }
    });
    const label = document.createElement("span");
    label.textContent = block.info;
    caption.append(label, copy);
    const pre = document.createElement("pre");
    pre.tabIndex = 0; // so that keys can scroll it
    const code = document.createElement("code");
    code.textContent = block.text;
    pre.append(code);
    figure.append(caption, pre);
    return figure;
  },

  list(block) {
    const items = [];
    for (const line of block.text.split("\n")) {
      const [, indent, mark, text] = ITEM.exec(line) ?? [];
      if (mark) {
        const depth = Math.min(indent.length, MAX_INDENT);
        items.push({depth, ordered: /\d/.test(mark), mark, text});
      } else if (line.trim()) {
        items.at(-1).text += `\n${line.trim()}`;
      }
    }
    return nested(items, 0, items.length);
  },
};

/** The list of items[begin..end), where what is indented deeper than the first is inside. */
function nested(items, begin, end) {
  const {depth, ordered, mark} = items[begin];
  const list = document.createElement(ordered ? "ol" : "ul");
  if (ordered && parseInt(mark) !== 1) list.start = parseInt(mark);
  for (let at = begin; at < end; ) {
    const item = filled("li", items[at].text);
    const inner = ++at;
    while (at < end && items[at].depth > depth + 1) at++;
    if (at > inner) item.append(nested(items, inner, at));
    list.append(item);
  }
  return list;
}

function filled(name, text) {
  const node = document.createElement(name);
  node.append(...inline(text));
  return node;
}

function inline(text) {
  const nodes = [];
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    nodes.push(text.slice(end, found.index));
    end = found.index + found[0].length;
    const [, ticks, code, bold, italic] = found;
    if (ticks) {
      const node = document.createElement("code");
      node.textContent = code.length > 2 ? code.replace(/^ (.*) $/s, "$1") : code;
      nodes.push(node);
    } else {
      nodes.push(filled(bold === undefined ? "em" : "strong", bold ?? italic));
    }
  }
  nodes.push(text.slice(end));
  return nodes.filter((node) => node !== "");
}
