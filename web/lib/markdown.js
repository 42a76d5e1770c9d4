// The Markdown of answers as elements. Texts become text nodes, and of a link only an http or https address is kept, so
// nothing that a model writes can act. What is no Markdown, or is not closed yet, stays the text that it is.

import {el} from './dom.js';

const kDepth = 6;      // of lists, quotes and marks inside each other
const kReach = 1000;   // characters in which a mark is closed, so that many open ones cost no quadratic time
const kItem = /^( *)([-*+]|\d{1,9}[.)]) +(?=\S)/;
const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6}) +(?=\S)/;
const kRule = /^ {0,3}([-*_])( *\1){2,} *$/;
const kQuote = /^ {0,3}> ?/;
const kRow = /^ *\|.*\| *$/;
const kDashes = /^ *\|( *:?-+:? *\|)+ *$/;

function linkTo(address, children) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return null;
  }
  if (!/^https?:$/.test(url.protocol)) return null;
  return el('a', {href: url.href, rel: 'noopener noreferrer nofollow', target: '_blank'}, ...children);
}

// Each takes the text from `at` on and returns [node, end], or null.
function code(text, at) {
  const fence = /^`+/.exec(text.slice(at, at + 20))[0];
  const end = text.indexOf(fence, at + fence.length);
  if (end < 0 || end - at > kReach || text[end + fence.length] === '`') return null;
  return [el('code', {}, text.slice(at + fence.length, end).trim() || fence), end + fence.length];
}

const isWord = letter => letter !== undefined && /[\p{L}\p{N}_]/u.test(letter);

function emphasis(text, at, depth) {
  const letter = text[at];
  for (const [size, tag] of [[2, 'strong'], [1, 'em']]) {
    const mark = letter.repeat(size);
    const begin = at + size;
    if (!text.startsWith(mark, at) || text[begin] === undefined || /\s/.test(text[begin])) continue;
    if (size === 1 && text[begin] === letter) continue;
    if (letter === '_' && isWord(text[at - 1])) continue;  // snake_case
    for (let end = text.indexOf(mark, begin + 1); end >= 0 && end - at < kReach; end = text.indexOf(mark, end + 1)) {
      if (size === 1 && text[end + 1] === letter) {
        ++end;  // of a mark of two
        continue;
      }
      if (/\s/.test(text[end - 1]) || (letter === '_' && isWord(text[end + size]))) continue;
      if (size === 2 && text[end + 2] === letter) ++end;  // ***both***: the inner mark ends first
      return [el(tag, {}, ...inline(text.slice(begin, end), depth + 1)), end + size];
    }
  }
  return null;
}

function link(text, at, depth) {
  const match = /^!?\[([^\[\]\n]{0,500})\]\(<?([^\s()<>]{1,2000})>?(?: +"[^"\n]{0,200}")?\)/.exec(text.slice(at, at + 3000));
  if (!match) return null;
  const node = linkTo(match[2], inline(match[1] || match[2], depth + 1));
  return node && [node, at + match[0].length];
}

function bareLink(text, at) {
  if (isWord(text[at - 1])) return null;
  const match = /^https?:\/\/[^\s<>"'`|]{1,2000}/.exec(text.slice(at, at + 2100));
  if (!match) return null;
  const address = match[0].replace(/[.,;:!?*_)\]]+$/, '');
  const node = linkTo(address, [address]);
  return node && [node, at + address.length];
}

// Nodes of a line or paragraph.
function inline(text, depth = 0) {
  const nodes = [];
  let plain = 0;  // where the text begins that is no node yet
  for (let at = 0; at < text.length;) {
    const letter = text[at];
    let found = null;
    if (letter === '\\' && /[!-\/:-@\[-`{-~]/.test(text[at + 1] || '')) found = [text[at + 1], at + 2];
    else if (letter === '`') found = code(text, at);
    else if (depth >= kDepth) found = null;
    else if (letter === '*' || letter === '_') found = emphasis(text, at, depth);
    else if (letter === '[' || (letter === '!' && text[at + 1] === '[')) found = link(text, at, depth);
    else if (letter === 'h') found = bareLink(text, at);
    if (found) {
      if (at > plain) nodes.push(text.slice(plain, at));
      nodes.push(found[0]);
      plain = at = found[1];
    } else {  // a whole run of marks that open nothing
      const run = letter === '`' || letter === '*' || letter === '_' ? letter : null;
      do ++at;
      while (run && text[at] === run);
    }
  }
  if (plain < text.length) nodes.push(text.slice(plain));
  return nodes;
}

const indentOf = line => line.length - line.trimStart().length;
const begins = line => [kFence, kHeading, kRule, kQuote, kItem].some(mark => mark.test(line));

// Each of these reads a block of `lines` from `at` on and returns [end, build].
function readFence(lines, at) {
  const mark = kFence.exec(lines[at])[1];
  const indent = indentOf(lines[at]);
  let end = at + 1;
  while (end < lines.length && !(lines[end].trim().startsWith(mark) && /^(`+|~+)$/.test(lines[end].trim()))) ++end;
  const inner = lines.slice(at + 1, end).map(line => line.slice(Math.min(indent, indentOf(line))));
  return [Math.min(lines.length, end + 1), () => el('pre', {tabindex: '0'}, el('code', {}, inner.join('\n')))];
}

function readQuote(lines, at, depth) {
  let end = at;
  while (end < lines.length && kQuote.test(lines[end])) ++end;
  const inner = lines.slice(at, end).map(line => line.replace(kQuote, ''));
  return [end, () => el('blockquote', {}, ...build(inner, depth + 1))];
}

function readTable(lines, at) {
  let end = at + 2;
  while (end < lines.length && kRow.test(lines[end])) ++end;
  const cells = (line, tag) =>
      el('tr', {}, ...line.trim().slice(1, -1).split(/(?<!\\)\|/).map(cell => el(tag, {}, ...inline(cell.trim()))));
  const rows = () => lines.slice(at + 2, end).map(line => cells(line, 'td'));
  const table = () => el('table', {}, el('thead', {}, cells(lines[at], 'th')), el('tbody', {}, ...rows()));
  return [end, () => el('div', {class: 'table', tabindex: '0'}, table())];
}

function readList(lines, at, depth) {
  const [, spaces, first] = kItem.exec(lines[at]);
  const isOrdered = /\d/.test(first);
  const items = [];
  let end = at;
  for (; end < lines.length; ++end) {
    const match = kItem.exec(lines[end]);
    const indent = indentOf(lines[end]);
    if (match && indent < spaces.length + 2) {
      if (indent < spaces.length || /\d/.test(match[2]) !== isOrdered) break;
      items.push([lines[end].slice(match[0].length)]);
      items.at(-1).indent = match[0].length;
    } else if (lines[end].trim() === '') {
      const next = lines.slice(end + 1, end + 3).find(line => line.trim() !== '');
      if (next === undefined || (indentOf(next) < spaces.length + 2 && !kItem.test(next))) break;
      items.at(-1).push('');
    } else if (indent > spaces.length || !begins(lines[end])) {
      items.at(-1).push(lines[end].slice(Math.min(indent, items.at(-1).indent)));
    } else
      break;
  }
  const start = isOrdered && parseInt(first, 10) !== 1 ? parseInt(first, 10) : null;
  const nodes = () => items.map(item => el('li', {}, ...build(item, depth + 1)));
  return [end, () => el(isOrdered ? 'ol' : 'ul', {start}, ...nodes())];
}

function readParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() !== '' && !begins(lines[end])) ++end;
  return [end, () => el('p', {}, ...inline(lines.slice(at, end).join('\n').trimStart()))];
}

// The page's own headings are of the levels 1 and 2.
function readHeading(lines, at) {
  const [mark, signs] = kHeading.exec(lines[at]);
  const text = lines[at].slice(mark.length).replace(/ #+ *$/, '');
  return [at + 1, () => el('h' + Math.min(6, signs.length + 2), {}, ...inline(text))];
}

function readBlock(lines, at, depth) {
  const line = lines[at];
  if (kFence.test(line)) return readFence(lines, at);
  if (kHeading.test(line)) return readHeading(lines, at);
  if (kRule.test(line)) return [at + 1, () => el('hr')];
  if (depth < kDepth && kQuote.test(line)) return readQuote(lines, at, depth);
  if (depth < kDepth && kItem.test(line)) return readList(lines, at, depth);
  if (kRow.test(line) && kDashes.test(lines[at + 1] || '')) return readTable(lines, at);
  return readParagraph(lines, at);
}

// [{source, build}] of a text's lines.
function blocks(lines, depth) {
  const list = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === '') {
      ++at;
      continue;
    }
    const [end, make] = readBlock(lines, at, depth);
    list.push({source: lines.slice(at, end).join('\n'), build: make});
    at = end;
  }
  return list;
}

function build(lines, depth) {
  const list = blocks(lines, depth);
  // An item of one paragraph is no paragraph.
  return list.map(block => block.build()).flatMap(
      (node, i) => depth > 0 && i === 0 && node.tagName === 'P' ? [...node.childNodes] : [node]);
}

// A text that grows: blocks that stay the same keep their elements, and with them what the reader has selected.
export class Markdown {
  constructor(host) {
    this.host = host;
    this.sources = [];
  }

  set(text) {
    const list = blocks(text.replace(/\r\n?/g, '\n').split('\n'), 0);
    let same = 0;
    while (same < list.length && this.sources[same] === list[same].source) ++same;
    while (this.host.childNodes.length > same) this.host.lastChild.remove();
    this.host.append(...list.slice(same).map(block => block.build()));
    this.sources = list.map(block => block.source);
  }
}
