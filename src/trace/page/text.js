// The shaded text. It is cut into chunks of about a thousand tokens; a chunk far from view is one plain text
// node, and adjacent tokens of the same look share a span.

const chunks = [];  // {first, end, node, seen: near the view, stale}
let look = null;    // (token) => class names of a token, set by main.js
let cursor = -1;

function cutChunks(begin, end, host) {
  const most = 2048;
  const least = 256;
  for (let first = begin; first < end;) {
    let stop = Math.min(end, first + most);
    for (let t = first + least; t < stop; ++t) {
      if (data.texts[t - 1].endsWith('\n')) {
        stop = t;
        break;
      }
    }
    const node = el('div', {class: 'chunk'});
    chunks.push({first, end: stop, node, seen: false, stale: true});
    host.append(node);
    first = stop;
  }
}

function paintPlain(chunk) {
  const span = el('span', {}, data.texts.slice(chunk.first, chunk.end).join(''));
  span.first = chunk.first;
  chunk.node.replaceChildren(span);
}

function paint(chunk) {
  const parts = [];
  for (let t = chunk.first; t < chunk.end;) {
    const classes = look(t);
    let end = t + 1;
    if (t !== cursor)
      while (end < chunk.end && end !== cursor && look(end) === classes) ++end;
    const span =
        el('span', {class: t === cursor ? classes + ' cursor' : classes}, data.texts.slice(t, end).join(''));
    span.first = t;
    parts.push(span);
    t = end;
  }
  chunk.node.replaceChildren(...parts);
  chunk.stale = false;
}

function makeText() {
  const host = byId('text');
  cutChunks(0, promptTokens, host);
  if (tokenCount > promptTokens) {
    host.append(el('div', {class: 'divider'}, 'generated'));
    cutChunks(promptTokens, tokenCount, host);
  }
  chunks.forEach(paintPlain);
  const chunkOf = new Map(chunks.map(chunk => [chunk.node, chunk]));
  const observer = new IntersectionObserver(entries => {
    for (const entry of entries) {
      const chunk = chunkOf.get(entry.target);
      chunk.seen = entry.isIntersecting;
      if (chunk.seen && chunk.stale) paint(chunk);
    }
  }, {root: host, rootMargin: '400px'});
  chunks.forEach(chunk => observer.observe(chunk.node));
}

function repaintText() {
  for (const chunk of chunks) {
    chunk.stale = true;
    if (chunk.seen) paint(chunk);
  }
}

function chunkWith(token) { return chunks.find(chunk => token >= chunk.first && token < chunk.end); }

// The token whose text is under a point, or -1.
function tokenAt(x, y) {
  let node, offset;
  if (document.caretPositionFromPoint) {
    const at = document.caretPositionFromPoint(x, y);
    if (at) {
      node = at.offsetNode;
      offset = at.offset;
    }
  } else if (document.caretRangeFromPoint) {
    const range = document.caretRangeFromPoint(x, y);
    if (range) {
      node = range.startContainer;
      offset = range.startOffset;
    }
  }
  if (!node || node.nodeType !== Node.TEXT_NODE || node.parentElement.first === undefined) return -1;
  // The caret is the nearest gap between letters; the letter under the point may be the one before it.
  const hit = (from, to) => {
    const range = document.createRange();
    range.setStart(node, from);
    range.setEnd(node, to);
    return [...range.getClientRects()].some(
        r => x >= r.left - 1 && x <= r.right + 1 && y >= r.top - 6 && y <= r.bottom + 6);
  };
  if (offset > 0 && hit(offset - 1, offset))
    --offset;
  else if (offset >= node.length || !hit(offset, offset + 1))
    return -1;
  let token = node.parentElement.first;
  while (token + 1 < tokenCount && offset >= data.texts[token].length) offset -= data.texts[token++].length;
  return token;
}

function setCursor(token, scroll) {
  const old = cursor >= 0 ? chunkWith(cursor) : null;
  cursor = token;
  const chunk = chunkWith(token);
  if (old && old !== chunk) {
    old.stale = true;
    if (old.seen) paint(old);
  }
  paint(chunk);
  if (!scroll) return;
  const host = byId('text');
  const node = [...chunk.node.children].find(span => span.first === token);
  const box = node.getBoundingClientRect();
  const view = host.getBoundingClientRect();
  if (scroll === 'middle' || box.top < view.top + 20 || box.bottom > view.bottom - 20) {
    host.scrollTop += box.top - view.top - view.height / 3;
  }
}
