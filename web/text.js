// A long text of tokens in a scrolling box, each with classes of its own. It is cut into chunks: one that is far from
// view is a single text node, and neighbouring tokens that look alike share a span, so 200,000 characters cost little.

import {el} from './dom.js';

const kLeast = 200;  // tokens of a chunk, which ends with a line where it can
const kMost = 800;

export class TokenText {
  // `classOf(token)`: how it looks. `onToken(token)`: it was pointed at or moved to.
  constructor(host, classOf, onToken) {
    this.host = host;
    this.classOf = classOf;
    this.onToken = onToken;
    this.observer = new IntersectionObserver(entries => this.onSeen(entries), {root: host, rootMargin: '300px'});
    host.addEventListener('pointermove', event => this.onPointer(event, false));
    host.addEventListener('click', event => this.onPointer(event, true));
    host.addEventListener('keydown', event => this.onKey(event));
    this.set([]);
  }

  set(pieces) {
    this.pieces = pieces;
    this.cursor = -1;
    this.chunks = [];  // {first, end, node, seen: near the view, stale: its shades}
    this.observer.disconnect();
    for (let first = 0; first < pieces.length;) {
      let end = Math.min(pieces.length, first + kMost);
      for (let t = first + kLeast; t < end; ++t) {
        if (pieces[t - 1].endsWith('\n')) end = t;
      }
      const node = el('div', {class: 'chunk'});
      const chunk = {first, end, node, seen: false, stale: true};
      node.chunk = chunk;
      this.chunks.push(chunk);
      node.append(this.span(first, end, ''));
      first = end;
    }
    this.host.replaceChildren(...this.chunks.map(chunk => chunk.node));
    this.host.scrollTop = 0;
    for (const chunk of this.chunks) this.observer.observe(chunk.node);
  }

  span(first, end, classes) {
    const span = el('span', classes === '' ? {} : {class: classes}, this.pieces.slice(first, end).join(''));
    span.first = first;
    return span;
  }

  paint(chunk) {
    const spans = [];
    for (let t = chunk.first; t < chunk.end;) {
      const classes = this.classOf(t);
      let end = t + 1;
      if (t === this.cursor)
        spans.push(this.span(t, end, classes + ' cursor'));
      else {
        while (end < chunk.end && end !== this.cursor && this.classOf(end) === classes) ++end;
        spans.push(this.span(t, end, classes));
      }
      t = end;
    }
    chunk.node.replaceChildren(...spans);
    chunk.stale = false;
  }

  repaint() {
    for (const chunk of this.chunks) {
      chunk.stale = true;
      if (chunk.seen) this.paint(chunk);
    }
  }

  onSeen(entries) {
    for (const {target, isIntersecting} of entries) {
      target.chunk.seen = isIntersecting;
      if (isIntersecting && target.chunk.stale) this.paint(target.chunk);
    }
  }

  chunkOf(token) { return this.chunks.find(chunk => token < chunk.end); }

  // Moves the cursor; `middle` brings it into the middle of the box.
  show(token, middle) {
    if (this.pieces.length === 0) return;
    const old = this.cursor >= 0 ? this.chunkOf(this.cursor) : null;
    this.cursor = Math.max(0, Math.min(this.pieces.length - 1, token));
    const chunk = this.chunkOf(this.cursor);
    if (old && old !== chunk) this.paint(old);
    this.paint(chunk);
    const box = [...chunk.node.children].find(span => span.first === this.cursor).getBoundingClientRect();
    const view = this.host.getBoundingClientRect();
    if (middle || box.top < view.top || box.bottom > view.bottom)
      this.host.scrollTop += box.top - view.top - this.host.clientHeight / 3;
    this.onToken(this.cursor);
  }

  // The token under a point of the window, or -1.
  tokenAt(x, y) {
    let node, offset;
    if (document.caretPositionFromPoint) {
      const caret = document.caretPositionFromPoint(x, y);
      if (caret) [node, offset] = [caret.offsetNode, caret.offset];
    } else if (document.caretRangeFromPoint) {
      const range = document.caretRangeFromPoint(x, y);
      if (range) [node, offset] = [range.startContainer, range.startOffset];
    }
    if (!node || node.nodeType !== Node.TEXT_NODE || node.parentElement.first === undefined) return -1;
    // The caret stands between two letters; the point may be in either, or beside the text.
    const covers = from => {
      if (from < 0 || from >= node.length) return false;
      const range = document.createRange();
      range.setStart(node, from);
      range.setEnd(node, from + 1);
      return [...range.getClientRects()].some(
          r => x >= r.left - 1 && x <= r.right + 1 && y >= r.top - 6 && y <= r.bottom + 6);
    };
    if (covers(offset - 1))
      --offset;
    else if (!covers(offset))
      return -1;
    let token = node.parentElement.first;
    for (; token + 1 < this.pieces.length && offset >= this.pieces[token].length; ++token)
      offset -= this.pieces[token].length;
    return token;
  }

  onPointer(event, isClick) {
    const token = this.tokenAt(event.clientX, event.clientY);
    if (token < 0) return;
    if (isClick)
      this.show(token, false);
    else
      this.onToken(token);
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const from = Math.max(0, this.cursor);
    // Up and down go to where the shade changes.
    const change = step => {
      const classes = this.classOf(from);
      let token = from;
      while (token + step >= 0 && token + step < this.pieces.length && this.classOf(token) === classes) token += step;
      return token;
    };
    const moves = {
      ArrowLeft: () => from - 1,
      ArrowRight: () => this.cursor + 1,
      ArrowUp: () => change(-1),
      ArrowDown: () => change(1),
      Home: () => 0,
      End: () => this.pieces.length - 1,
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.show(moves[event.key](), false);
  }
}
