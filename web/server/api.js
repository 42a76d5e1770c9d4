// The server's routes. Paths are relative, so that the page also works where a proxy puts it under a prefix.

let key = '';  // in memory alone: scripts of other pages under the same address could read what a browser keeps

export function setKey(text) { key = text; }

let model = '';  // of several; a server with one needs no name

export function setModel(name) { model = name; }

const named = path => model === '' ? path : path + (path.includes('?') ? '&' : '?') + 'model=' + encodeURIComponent(model);

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;  // 0 where there was no answer
  }
}

async function ask(path, options) {
  const headers = {...options.headers};
  if (key !== '') headers.Authorization = 'Bearer ' + key;
  let reply;
  try {
    reply = await fetch(named(path), {...options, headers, credentials: 'omit', cache: 'no-store'});
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'The server does not answer (' + error.message + ').');
  }
  if (reply.ok) return reply;
  const text = await reply.text();
  let message = '';
  try {
    message = JSON.parse(text).error.message;
  } catch {
    message = text;  // a proxy's, perhaps
  }
  throw new ApiError(reply.status, message || `${reply.status} ${reply.statusText}`);
}

export async function get(path) { return (await ask(path, {})).json(); }
export async function getText(path) { return (await ask(path, {})).text(); }

function send(path, body, signal) {
  return ask(path, {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body), signal});
}
export async function post(path, body, signal) { return (await send(path, body, signal)).json(); }

// `file`: the body, as it is.
export async function postFile(path, file, signal) {
  const options = {method: 'POST', headers: {'Content-Type': 'application/octet-stream'}, body: file, signal};
  return (await ask(path, options)).json();
}

// The events of a stream, parsed, without the comments that keep it alive.
export async function* events(path, body, signal) {
  const reply = await send(path, body, signal);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const {value, done} = await reader.read();
    if (done) throw new ApiError(0, 'The connection ended before the answer did.');
    const searched = Math.max(0, rest.length - 1);
    rest += value;
    let begin = 0;
    for (let end; (end = rest.indexOf('\n\n', Math.max(begin, searched))) >= 0; begin = end + 2) {
      const block = rest.slice(begin, end);
      if (!block.startsWith('data: ')) continue;
      const data = block.slice('data: '.length);
      if (data === '[DONE]') return;
      const event = JSON.parse(data);
      if (event.error) throw new ApiError(event.error.code, event.error.message);
      yield event;
    }
    rest = rest.slice(begin);
  }
}
