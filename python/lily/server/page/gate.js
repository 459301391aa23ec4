// What the privacy gate says of a message before it is sent anywhere. This file owns how a verdict
// looks; the gate itself is the server's, at /v1/gate. Text never becomes markup.

import {element} from "./answer.js";

const HEADLINES = {
  allow: "This could leave this machine as it is.",
  mask: "This could leave with placeholders.",
  ask: "This could leave only if you agree.",
  local: "This should stay on this machine.",
  refuse: "This must not leave.",
};

/** The nodes that show the verdict on a text; throws where there is none. */
export async function preview(text, headers) {
  const response = await fetch("/v1/gate", {
    method: "POST",
    headers: {...headers, "content-type": "application/json"},
    body: JSON.stringify({text}),
  });
  const verdict = await response.json();
  if (!response.ok) throw new Error(verdict.error.message);
  const reasons = verdict.reasons.map((reason) => element("li", {}, reason));
  const sent = ["mask", "ask"].includes(verdict.outcome) && verdict.masked !== text;
  return [
    element("p", {className: `verdict ${verdict.outcome}`}, HEADLINES[verdict.outcome]),
    element("ul", {}, ...reasons),
    element("p", {className: "seen", dir: "auto"}, ...marked(text, verdict.findings)),
    ...(sent ? [element("h3", {}, "With placeholders"),
      element("p", {className: "seen", dir: "auto"}, verdict.masked)] : []),
  ];
}

/** The text with its findings marked. Offsets count characters, not the halves of JavaScript. */
function marked(text, findings) {
  const characters = [...text];
  const nodes = [];
  let done = 0;
  for (const one of findings) {
    const start = Math.max(one.start, done);
    if (start >= one.end) continue;
    nodes.push(characters.slice(done, start).join(""));
    const title = one.category.replaceAll("_", " ");
    nodes.push(element("mark", {title}, characters.slice(start, one.end).join("")));
    done = one.end;
  }
  return [...nodes, characters.slice(done).join("")];
}
