// What a reload must not lose: the document, the question, the settings and the conversation, in the session's storage,
// which ends with the tab. The key of a server is not among them.

import {byId} from '../lib/dom.js';

const kPause = 400;  // ms after the last change
const kName = 'coppice-page:' + location.pathname;  // several servers may stand behind one proxy
const kInTheWay = 'This document is too large for the browser to keep. A reload of the page loses it.';

// Writes `state`, whose documents may be too many or too large for the storage: then fewer of them. Returns whether the
// first one, which is that of the page, is kept.
export function write(storage, name, state) {
  const smaller = [state.documents, state.documents.slice(0, 1), ['']];
  for (const documents of smaller) {
    try {
      storage.setItem(name, JSON.stringify({...state, documents}));
      return documents[0] === state.documents[0];
    } catch {
      // Too much, or a browser that keeps nothing.
    }
  }
  try {
    storage.removeItem(name);  // an old state would be a wrong one
  } catch {
    // Nothing is there then.
  }
  return state.documents[0] === '';
}

export class Store {
  // Each part has `state(refer)` and `restore(state, documents)`; `refer(text)` is a number for a document.
  constructor(parts) {
    this.parts = parts;
    this.timer = 0;
    this.isOver = false;
    document.addEventListener('input', () => this.schedule());
    addEventListener('pagehide', () => this.save());
    byId('start-over').addEventListener('click', () => {
      this.isOver = true;
      try {
        sessionStorage.removeItem(kName);
      } catch {
        // Nothing is there then.
      }
      location.reload();
    });
  }

  // Once, when the settings have their fields.
  restore() {
    if (this.isRestored) return;
    this.isRestored = true;
    try {
      const state = JSON.parse(sessionStorage.getItem(kName));
      if (state) {
        for (const [name, part] of Object.entries(this.parts)) part.restore(state[name], state.documents);
      }
    } catch {
      // Not of this page's making, or of another version: what could be read is there.
    }
    this.schedule();
  }

  schedule() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.save(), kPause);
  }

  save() {
    clearTimeout(this.timer);
    if (!this.isRestored || this.isOver) return;
    const documents = [byId('document').value];
    const refer = text => {
      if (!documents.includes(text)) documents.push(text);
      return documents.indexOf(text);
    };
    const state = {documents};
    for (const [name, part] of Object.entries(this.parts)) state[name] = part.state(refer);
    let isKept;
    try {
      isKept = write(sessionStorage, kName, state);
    } catch {
      isKept = false;  // a browser may refuse even to name its storage
    }
    byId('store-note').textContent = isKept ? '' : kInTheWay;
    byId('store-note').hidden = isKept;
    byId('start-over').hidden = documents.every(text => text === '') && state.conversation.turns.length === 0;
  }
}
