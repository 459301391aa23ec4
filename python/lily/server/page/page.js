// The chat: what was said, what is being said, and what the user may do. The history lives in this
// page's memory and nowhere else. Text of the model never becomes markup (see markdown.js).

import {Answer, element, question} from "./answer.js";
import {preview} from "./gate.js";
import {ServerError, events} from "./stream.js";

const $ = (id) => document.getElementById(id);
const log = $("log");
const scroller = $("scroller");
let history = [];
let running = null; // the AbortController of the answer that is being made
let key = "";
const touch = matchMedia("(hover: none)"); // a keyboard on the screen: Enter is for lines there

// --- settings ---

function headers() {
  return key ? {authorization: `Bearer ${key}`} : {};
}

function request() {
  const system = $("system").value.trim();
  const body = {
    messages: system ? [{role: "system", content: system}, ...history] : history,
    stream: true,
    stream_options: {include_usage: true},
    enable_thinking: $("thinking").checked,
  };
  const temperature = $("temperature").valueAsNumber;
  if (!Number.isNaN(temperature)) body.temperature = temperature;
  const tools = JSON.parse($("tools").value.trim() || "[]");
  if (tools.length) body.tools = tools;
  return body;
}

function checkTools() {
  let problem = "";
  try {
    if (!Array.isArray(JSON.parse($("tools").value.trim() || "[]"))) problem = "This is no list.";
  } catch (error) {
    problem = `This is no JSON: ${error.message}`;
  }
  $("tools").setCustomValidity(problem);
  $("tools-error").textContent = problem;
}

async function askForKey() {
  const dialog = $("key-dialog");
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, {once: true}));
  const given = dialog.returnValue === "use" ? $("key").value.trim() : "";
  $("key").value = "";
  if (given) key = given;
  return given !== "";
}

// --- the chat ---

function add(node) {
  $("welcome").hidden = true;
  log.append(node);
  scroller.scrollTop = scroller.scrollHeight;
}

/** Follow the text, unless the user has scrolled up to read. */
function follow(change) {
  const near = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
  change();
  if (near) scroller.scrollTop = scroller.scrollHeight;
}

function say(text) {
  $("status").textContent = text;
}

async function send(text) {
  const said = {role: "user", content: text};
  const shown = question(text);
  history.push(said);
  add(shown);
  if (await answer()) return;
  // Nothing came: the question goes back to where it can be sent again.
  history = history.filter((message) => message !== said);
  shown.remove();
  $("welcome").hidden = log.children.length > 0;
  if (!$("text").value) $("text").value = text;
  grow();
}

/** Let the model speak. Returns whether it said anything. */
async function answer() {
  const made = new Answer();
  const before = history;
  running = new AbortController();
  busy(true);
  add(made.node);
  let note = "";
  let again = false;
  try {
    const options = {headers: headers(), signal: running.signal};
    for await (const event of events("/v1/chat/completions", request(), options)) {
      follow(() => made.take(event, () => follow(() => {})));
    }
    say("");
  } catch (error) {
    if (running.signal.aborted) note = "stopped";
    else if (error instanceof ServerError && error.status === 401) again = await askForKey();
    else say(note = `Not answered: ${error.message}`);
  }
  running = null;
  busy(false);
  follow(() => made.finish(note));
  if (history !== before) return true; // a new chat was begun meanwhile
  if (made.empty && made.reason === null) {
    made.node.remove();
    return again ? answer() : false;
  }
  history.push(made.message);
  if (made.message.tool_calls) add(results(made.message.tool_calls));
  return true;
}

/** Fields for what the called functions give, which only the user can know here. */
function results(calls) {
  const fields = calls.map((call) => element("textarea", {rows: 2, id: `result-${call.id}`}));
  const form = element("form", {className: "results"});
  calls.forEach((call, index) => {
    const label = element("label", {htmlFor: fields[index].id}, `Result of ${call.function.name}`);
    form.append(label, fields[index]);
  });
  form.append(element("button", {type: "submit"}, "Send results"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) return;
    calls.forEach((call, index) => {
      history.push({role: "tool", tool_call_id: call.id, content: fields[index].value});
      fields[index].readOnly = true;
    });
    form.querySelector("button").remove();
    answer();
  });
  return form;
}

function busy(is) {
  const lost = [document.body, $("stop")].includes(document.activeElement);
  $("send").hidden = is;
  $("stop").hidden = !is;
  log.setAttribute("aria-busy", String(is));
  if (is) say("Answering…");
  else if ($("status").textContent === "Answering…") say("");
  if (!is && lost && !touch.matches) $("text").focus();
}

function begin() {
  running?.abort();
  history = [];
  log.replaceChildren();
  $("welcome").hidden = false;
  say("");
  if (!touch.matches) $("text").focus();
}

function grow() {
  const text = $("text");
  text.style.height = "auto";
  text.style.height = `${Math.min(text.scrollHeight + 2, window.innerHeight * 0.4)}px`;
}

async function showModel() {
  const response = await fetch("/v1/models", {headers: headers()});
  if (response.status === 401 && (await askForKey())) return showModel();
  if (response.ok) $("model").textContent = (await response.json()).data[0].id;
  else if (response.status === 503) setTimeout(showModel, 1000); // still loading
}

// --- what the user does ---

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("text").value.trim();
  if (!text || running) return;
  $("text").value = "";
  grow();
  send(text);
});

$("check").addEventListener("click", async () => {
  const text = $("text").value;
  if (!text.trim()) return;
  $("gate-result").replaceChildren("Looking…");
  $("gate-dialog").showModal();
  try {
    $("gate-result").replaceChildren(...await preview(text, headers()));
  } catch (error) {
    $("gate-result").replaceChildren(`Not judged: ${error.message}`);
  }
});

$("text").addEventListener("keydown", (event) => {
  // While an input method composes a word, Enter belongs to it.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || touch.matches) return;
  event.preventDefault();
  $("composer").requestSubmit();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running && !document.querySelector("dialog[open]")) running.abort();
});

$("text").addEventListener("input", grow);
$("stop").addEventListener("click", () => running?.abort());
$("new").addEventListener("click", begin);
$("open-settings").addEventListener("click", () => $("settings").showModal());
$("tools").addEventListener("input", checkTools);
$("theme").addEventListener("change", () => {
  document.documentElement.dataset.theme = $("theme").value;
});

showModel().catch(() => say("The server cannot be reached."));
