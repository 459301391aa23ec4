// One answer on the page, as it grows: thinking folded, text, calls, speed. This file owns how a
// message looks in the DOM; it knows no network.

import {show} from "./markdown.js";

export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

/** What the user said. */
export function question(text) {
  const words = element("div", {className: "words", dir: "auto"});
  words.textContent = text;
  return element("article", {className: "user"}, unseen("You"), words);
}

function unseen(text) {
  return element("h2", {className: "unseen"}, text);
}

export class Answer {
  constructor() {
    this.content = "";
    this.reasoning = "";
    this.calls = [];
    this.reason = null;
    this.begun = performance.now();
    this.firstAt = null;
    this.timings = null;
    this.frame = null;
    this.thoughts = element("div", {className: "thoughts", dir: "auto"});
    this.fold = element("details", {className: "thinking", hidden: true},
      element("summary", {}, "Thinking…"), this.thoughts);
    this.words = element("div", {className: "words", dir: "auto"});
    this.listed = element("div", {className: "calls"});
    this.pending = element("p", {className: "pending"}, "Reading…");
    this.speed = element("p", {className: "speed"});
    this.node = element("article", {className: "assistant"}, unseen("Lily"),
      this.pending, this.fold, this.words, this.listed, this.speed);
    this.node.setAttribute("aria-busy", "true");
  }

  /** Whether there is anything to keep. */
  get empty() {
    return !this.content && !this.reasoning && !this.calls.length;
  }

  /** The message for the history: complete calls only, which are all that can be answered. */
  get message() {
    const message = {role: "assistant", content: this.content};
    if (this.reasoning) message.reasoning_content = this.reasoning;
    if (this.reason === "tool_calls") {
      message.tool_calls = this.calls.map(({id, name, arguments: text}) => (
        {id, type: "function", function: {name, arguments: text}}));
    }
    return message;
  }

  /** Take one event of the stream; the page is drawn at most once a frame. */
  take(event, drawn) {
    const choice = event.choices?.[0];
    this.timings = event.timings ?? this.timings;
    this.usage = event.usage ?? this.usage;
    if (!choice) return;
    const {content, reasoning_content: thought, tool_calls: calls} = choice.delta;
    if (content || thought || calls) this.firstAt ??= performance.now();
    this.content += content ?? "";
    this.reasoning += thought ?? "";
    for (const part of calls ?? []) {
      const call = (this.calls[part.index] ??= {id: part.id, name: "", arguments: ""});
      call.name += part.function.name ?? "";
      call.arguments += part.function.arguments ?? "";
    }
    this.reason = choice.finish_reason ?? this.reason;
    this.frame ??= requestAnimationFrame(() => {
      this.draw();
      drawn();
    });
  }

  draw() {
    this.frame = null;
    this.pending.hidden = !this.empty;
    if (this.reasoning.trim()) {
      this.fold.hidden = false;
      this.thoughts.textContent = this.reasoning.trim();
    }
    show(this.words, this.content);
    this.calls.forEach((call, index) => {
      const card = this.listed.children[index] ?? this.addCall(call.name);
      card.querySelector("pre").textContent = indented(call.arguments);
    });
  }

  addCall(name) {
    const title = element("p", {}, "Calls ", element("code", {}, name));
    const card = element("div", {className: "call"}, title, element("pre", {tabIndex: 0}));
    this.listed.append(card);
    return card;
  }

  /** No more comes; `note` says why, if not because the answer is complete. */
  finish(note = "") {
    cancelAnimationFrame(this.frame);
    this.draw();
    this.pending.hidden = true;
    this.fold.querySelector("summary").textContent =
      this.content || this.calls.length ? "Thought" : "Thought, and said nothing";
    const told = this.reason === "length" ? "the longest answer that is allowed" : note;
    const parts = [...this.figures(), told].filter(Boolean);
    // Lines break between the parts only.
    this.speed.textContent = parts.map((part) => part.replaceAll(" ", "\u00a0")).join(" · ");
    this.node.removeAttribute("aria-busy");
  }

  figures() {
    if (this.firstAt === null) return [];
    const first = `first token ${((this.firstAt - this.begun) / 1000).toFixed(2)} s`;
    const took = this.timings;
    if (!took) return [first];
    const cached = took.cache_n ? `, ${took.cache_n} from cache` : "";
    return [
      took.predicted_n > 1 ? `${took.predicted_per_second.toFixed(1)} tok/s` : "",
      first,
      `${took.predicted_n} tokens`,
      `prompt ${took.cache_n + took.prompt_n}${cached}`,
    ];
  }
}

function indented(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json; // not complete yet
  }
}
