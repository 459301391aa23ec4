// Server-sent events from fetch. This file knows HTTP and the form of events, and nothing of chats.

/** The server's answer was an error; `status` is 0 if it came within a stream. */
export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Post JSON and give the data of each event, parsed, up to the end. Raises ServerError. */
export async function* events(path, body, {headers = {}, signal} = {}) {
  const response = await fetch(path, {
    method: "POST",
    headers: {"content-type": "application/json", ...headers},
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw new ServerError(await reason(response), response.status);
  for await (const data of pieces(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ServerError(event.error.message, 0);
    yield event;
  }
  throw new ServerError("the answer was cut off", 0);
}

async function reason(response) {
  try {
    return (await response.json()).error.message;
  } catch {
    return `the server answered ${response.status}`;
  }
}

async function* pieces(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const {value, done} = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        if (block.startsWith("data: ")) yield block.slice("data: ".length);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
