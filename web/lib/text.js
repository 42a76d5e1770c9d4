// A long text of tokens in a scrolling box, each with classes of its own. It is cut into chunks: one that is far from
// view is a single text node, and neighbouring tokens that look alike share a span, so 200,000 characters cost little.

import {el} from './dom.js';

const kLeast = 200;  // tokens of a chunk, which ends with a line where it can
const kMost = 800;

export class TokenText {
  // `classOf(token)`: its CSS classes. `onMove(token)`: the cursor moved to it. `onPoint(token, event)`: the mouse is
  // over it, or over no token (-1).
  constructor(host, classOf, onMove, onPoint) {
    this.host = host;
    this.classOf = classOf;
    this.onMove = onMove;
    this.observer = new IntersectionObserver(entries => this.onSeen(entries), {root: host, rootMargin: '300px'});
    host.addEventListener('pointermove', event => {
      if (event.pointerType === 'mouse') onPoint(this.tokenAt(event.clientX, event.clientY), event);
    });
    host.addEventListener('click', event => {
      const token = this.tokenAt(event.clientX, event.clientY);
      if (token >= 0) this.show(token, false);
    });
    host.addEventListener('keydown', event => this.onKey(event));
    this.set([]);
  }

  // A line with `title` divides the text before piece `divide`.
  set(pieces, divide = pieces.length, title = '') {
    this.pieces = pieces;
    this.cursor = -1;
    this.chunks = [];  // {first, end, node, seen: near the view, stale: its shades}
    this.observer.disconnect();
    this.host.replaceChildren();
    this.cut(0, divide);
    if (divide < pieces.length) {
      this.host.append(el('div', {class: 'divider'}, title));
      this.cut(divide, pieces.length);
    }
    this.host.scrollTop = 0;
    for (const chunk of this.chunks) this.observer.observe(chunk.node);
  }

  cut(begin, stop) {
    for (let first = begin; first < stop;) {
      let end = Math.min(stop, first + kMost);
      for (let t = first + kLeast; t < end; ++t) {
        if (this.pieces[t - 1].endsWith('\n')) end = t;
      }
      const node = el('div', {class: 'chunk'}, this.span(first, end, ''));
      const chunk = {first, end, node, seen: false, stale: true};
      node.chunk = chunk;
      this.chunks.push(chunk);
      this.host.append(node);
      first = end;
    }
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
    this.onMove(this.cursor);
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
