// The Markdown that models write, as elements. Every text becomes a text node, so that no answer is ever markup.

import {el} from './dom.js';

const kFence = /^\s*(```+|~~~+)\s*([\w+-]*)/;
const kItem = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const kHeading = /^(#{1,6})\s+(.*?)\s*#*$/;
const kQuote = /^\s*>\s?/;
const kRule = /^\s*([-*_])(\s*\1){2,}\s*$/;
// In this order: code, bold, italic, a link.
const kInline = /(`+)(.+?)\1(?!`)|(\*\*|__)(?=\S)(.+?)\3|(?<![\w*])([*_])(?=\S)(.+?)\5(?!\w)|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/s;

// The nodes of a text within a block.
function inline(text) {
  const nodes = [];
  for (let match; (match = kInline.exec(text)) !== null; text = text.slice(match.index + match[0].length)) {
    if (match.index > 0) nodes.push(text.slice(0, match.index));
    if (match[2] !== undefined)
      nodes.push(el('code', {}, match[2]));
    else if (match[4] !== undefined)
      nodes.push(el('strong', {}, ...inline(match[4])));
    else if (match[6] !== undefined)
      nodes.push(el('em', {}, ...inline(match[6])));
    else
      nodes.push(el('a', {href: match[8], target: '_blank', rel: 'noopener noreferrer'}, match[7]));
  }
  if (text !== '') nodes.push(text);
  return nodes;
}

// Lines that are read one after the other.
class Lines {
  constructor(lines) {
    this.lines = lines;
    this.at = 0;
  }
  get left() { return this.at < this.lines.length; }
  get next() { return this.lines[this.at]; }
  // Those from here on that `fits` holds for.
  take(fits) {
    const begin = this.at;
    while (this.left && fits(this.next)) ++this.at;
    return this.lines.slice(begin, this.at);
  }
}

function codeBlock(lines) {
  const [, fence] = kFence.exec(lines.lines[lines.at++]);
  const code = lines.take(line => !line.trim().startsWith(fence));
  ++lines.at;  // the closing fence, which an answer that was cut lacks
  return el('pre', {}, el('code', {}, code.join('\n')));
}

// Items with deeper ones inside them.
function list(lines) {
  const [, indent, mark] = kItem.exec(lines.next);
  const ordered = /\d/.test(mark);
  const items = [];
  while (lines.left) {
    const match = kItem.exec(lines.next);
    if (match === null || match[1].length < indent.length) break;
    if (match[1].length > indent.length + 1 && items.length > 0) {
      items.at(-1).append(list(lines));
      continue;
    }
    if (/\d/.test(match[2]) !== ordered) break;
    ++lines.at;
    const more = lines.take(line => line.trim() !== '' && /^\s{2,}/.test(line) && !kItem.test(line));
    items.push(el('li', {}, ...inline([match[3], ...more.map(line => line.trim())].join('\n'))));
    // A blank line between two items does not end the list.
    if (lines.left && lines.next.trim() === '' && kItem.test(lines.lines[lines.at + 1] || '')) ++lines.at;
  }
  return el(ordered ? 'ol' : 'ul', ordered && parseInt(mark) !== 1 ? {start: String(parseInt(mark))} : {}, ...items);
}

const beginsBlock = line => line.trim() === '' || [kFence, kItem, kHeading, kQuote, kRule].some(one => one.test(line));

function blocks(lines, depth) {
  const nodes = [];
  while (lines.left) {
    const line = lines.next;
    const heading = kHeading.exec(line);
    if (line.trim() === '')
      ++lines.at;
    else if (kFence.test(line))
      nodes.push(codeBlock(lines));
    else if (heading !== null) {
      ++lines.at;
      nodes.push(el('h' + Math.min(6, heading[1].length + 2), {}, ...inline(heading[2])));
    } else if (kRule.test(line)) {
      ++lines.at;
      nodes.push(el('hr'));
    } else if (kQuote.test(line) && depth < 4) {
      const quoted = lines.take(one => kQuote.test(one)).map(one => one.replace(kQuote, ''));
      nodes.push(el('blockquote', {}, ...blocks(new Lines(quoted), depth + 1)));
    } else if (kItem.test(line))
      nodes.push(list(lines));
    else {
      const first = lines.lines[lines.at++];
      nodes.push(el('p', {}, ...inline([first, ...lines.take(one => !beginsBlock(one))].join('\n'))));
    }
  }
  return nodes;
}

export const markdown = text => blocks(new Lines(text.split('\n')), 0);
