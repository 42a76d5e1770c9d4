// The document as an answer's passages stand in it, in place of the field that edits it.

import {byId} from '../lib/dom.js';
import {TokenText} from '../lib/text.js';

// The text in pieces: lines, and each passage as one piece. Also the piece of each passage.
export function cutAt(text, passages) {
  const order = passages.map((passage, index) => ({...passage, index})).sort((a, b) => a.begin - b.begin);
  const pieces = [];
  const places = new Map();  // piece: index of its passage
  let at = 0;
  const addLines = end => {
    if (at < end) pieces.push(...text.slice(at, end).match(/[^\n]*\n|[^\n]+/g));
    at = end;
  };
  for (const {begin, end, index} of order) {
    addLines(begin);
    places.set(pieces.length, index);
    pieces.push(text.slice(begin, end));
    at = end;
  }
  addLines(text.length);
  return {pieces, places};
}

export class DocumentView {
  constructor() {
    this.places = new Map();
    this.chosen = -1;
    this.text = new TokenText(byId('document-text'), piece => this.classOf(piece), () => {}, () => {});
    byId('leave-view').addEventListener('click', () => {
      this.hide();
      if (this.from.isConnected) this.from.focus();
    });
  }

  classOf(piece) {
    if (!this.places.has(piece)) return '';
    return this.places.get(piece) === this.chosen ? 'passage chosen' : 'passage';
  }

  // Shows the passage `index` of `passages` in `text`; the focus goes back to `from` at the end.
  show(text, passages, index, from) {
    this.from = from;
    this.chosen = index;
    const {pieces, places} = cutAt(text, passages);
    this.places = places;
    const isCurrent = text === byId('document').value;
    byId('view-note').textContent = isCurrent ? 'The passages of the answer are marked.' :
                                                'The document as it was when you asked. It has changed since.';
    this.swap(true);
    this.text.set(pieces);
    const card = byId('document-card');
    card.scrollIntoView({block: card.getBoundingClientRect().height < innerHeight ? 'nearest' : 'start'});
    this.text.show([...places].find(([, passage]) => passage === index)[0], true);
    byId('document-text').focus({preventScroll: true});
  }

  swap(isShown) {
    byId('document-view').hidden = !isShown;
    for (const id of ['document', 'document-note', 'document-row']) byId(id).hidden = isShown;
  }

  hide() {
    this.swap(false);
    this.text.set([]);
  }
}
