// Which passages of a document the model carried deepest: sentences whose tokens stayed to the last layers, those first
// that share rare words with the question and the answer. Depth alone does not rank them, because a method that keeps
// whole sentences takes dozens of them to the last layer. Pure: no element, no request.

const kLongest = 320;   // characters of a sentence before it is cut between words
const kJoined = 400;    // characters of a passage of several sentences
const kMost = 12;       // sentences
const kNear = .3;       // share of the best sentence's value that the others need
const kBeside = .25;    // share of the weightier neighbour's weight that a sentence gets; alone not enough for kNear

// The document's place in the prompt: its first token, the one behind its last, and the offset of each between them in
// the document. Null where the prompt does not hold the text as it is.
function place(document, pieces) {
  const text = document.trim();  // templates cut the spaces around a message
  const at = text === '' ? -1 : pieces.join('').indexOf(text);
  if (at < 0) return null;
  const shift = document.indexOf(text) - at;
  const tokens = [];  // {token, begin, end} in the document
  let offset = 0;
  pieces.forEach((piece, token) => {
    const begin = Math.max(at, offset);
    const end = Math.min(at + text.length, offset += piece.length);
    if (begin < end) tokens.push({token, begin: begin + shift, end: end + shift});
  });
  return tokens;
}

// Sentences and lines, without the spaces around them: [begin, end].
export function sentences(text) {
  const found = [];
  const add = (begin, end) => {
    while (begin < end && /\s/.test(text[begin])) ++begin;
    while (end > begin && /\s/.test(text[end - 1])) --end;
    while (end - begin > kLongest) {
      const space = text.lastIndexOf(' ', begin + kLongest);
      const cut = space > begin ? space : begin + kLongest;
      found.push([begin, cut]);
      begin = cut;
      while (begin < end && /\s/.test(text[begin])) ++begin;
    }
    if (begin < end) found.push([begin, end]);
  };
  let begin = 0;
  for (const match of text.matchAll(/\n|[.!?]["')\]\u201d\u2019]*(?=\s)|[\u3002\uff01\uff1f]/g)) {
    const end = match.index + match[0].length;
    add(begin, end);
    begin = end;
  }
  add(begin, text.length);
  return found;
}

// Words by their stems, so that "repaired" is found in "repairs". The parts of a name such as ReadFile are words.
function stemOf(word) {
  const stem = word.replace(/(?:ies|ing|ed|es|s|y|e)$/, '');
  return stem.length >= 3 ? stem : word;
}
function wordsOf(text) {
  const parts = text.replace(/(\p{Ll})(\p{Lu})/gu, '$1 $2').toLowerCase().match(/\p{L}+|\p{N}+/gu) || [];
  return new Set(parts.map(stemOf));
}

// How much of the depth above the document's least a sentence's tokens have, 0 to 1, and their number.
function measure(document, tokens, depths) {
  let least = Infinity;
  let most = 0;
  for (const {token} of tokens) {
    least = Math.min(least, depths[token]);
    most = Math.max(most, depths[token]);
  }
  if (!(most > least)) return null;  // all stayed equally long: depth says nothing
  const list = [];
  let t = 0;
  for (const [begin, end] of sentences(document)) {
    let count = 0;
    let sum = 0;
    let deepest = 0;
    while (t < tokens.length && tokens[t].end <= begin) ++t;
    for (let i = t; i < tokens.length && tokens[i].begin < end; ++i) {
      const depth = depths[tokens[i].token];
      ++count;
      sum += (depth - least) / (most - least);
      if (depth === most) ++deepest;
    }
    if (count > 0) list.push({begin, end, share: sum / count, sum, deepest});
  }
  return list;
}

// Adds to each sentence the weight of the words that it shares with `asked`: a word in few sentences weighs more. The
// weightier neighbour counts a little, because what is asked for often stands beside what the question names.
function weigh(document, list, asked) {
  const wanted = wordsOf(asked);
  const counts = new Map();
  for (const sentence of list) {
    sentence.words = [...wordsOf(document.slice(sentence.begin, sentence.end))].filter(word => wanted.has(word));
    for (const word of sentence.words) counts.set(word, (counts.get(word) || 0) + 1);
  }
  const own = list.map(({words}) => words.reduce((sum, word) => sum + Math.log(1 + list.length / counts.get(word)), 0));
  list.forEach((sentence, i) => {
    sentence.weight = own[i] + kBeside * Math.max(own[i - 1] || 0, own[i + 1] || 0);
  });
}

// Chosen sentences that stand side by side become one passage, at the place of the better one.
function join(document, chosen) {
  const passages = [];
  for (const {begin, end} of chosen) {
    const near = passages.find(one => {
      const between = document.slice(Math.min(one.end, end), Math.max(one.begin, begin));
      return /^[^\S\n]*\n?[^\S\n]*$/.test(between) && Math.max(one.end, end) - Math.min(one.begin, begin) <= kJoined;
    });
    if (near) {
      near.begin = Math.min(near.begin, begin);
      near.end = Math.max(near.end, end);
    } else
      passages.push({begin, end});
  }
  return passages;
}

// `pieces`: the prompt's tokens as texts; `depths`: for each the number of layers with its keys; `asked`: the question,
// with the answer. Returns passages {begin, end} of `document`, best first; none where depth tells nothing.
export function choosePassages({document, pieces, depths, asked}) {
  const tokens = place(document, pieces);
  const list = tokens && measure(document, tokens, depths);
  if (!list) return [];
  weigh(document, list, asked);
  const mean = list.reduce((sum, {share}) => sum + share, 0) / list.length;
  const candidates = list.filter(({share, deepest}) => deepest > 0 && share >= mean);
  const value = ({share, weight}) => share * weight;
  candidates.sort((a, b) => value(b) - value(a) || b.sum - a.sum || a.begin - b.begin);
  const least = candidates.length === 0 ? 0 : kNear * value(candidates[0]);
  return join(document, candidates.filter(one => value(one) >= least).slice(0, kMost));
}
