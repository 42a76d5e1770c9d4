// Elements, numbers, colours. Texts of users and models reach a page as text nodes alone.

export const byId = id => document.getElementById(id);

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    if (value !== null) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
export const el = (tag, attributes = {}, ...children) => build(document.createElement(tag), attributes, children);
export const svgEl = (tag, attributes = {}, ...children) =>
    build(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

export const number = value => value.toLocaleString('en-US', {maximumFractionDigits: 0});
export const plural = (count, word) => number(count) + ' ' + word + (count === 1 ? '' : 's');

export function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < .05) return 'below 0.1 %';
  return (value > 0 && value < 10 ? value.toFixed(1) : value.toFixed(0)) + ' %';
}

// [r, g, b] of a custom property. Only an element's own colour is resolved for the current theme.
export function colour(property) {
  const probe = el('i');
  probe.style.color = `var(${property})`;
  document.body.append(probe);
  const parts = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return parts;
}
export const mix = (a, b, share) => a.map((value, i) => value + (b[i] - value) * share);

// A text beside the pointer, in the page's element `tip`.
export function showTip(text, x, y) {
  const tip = byId('tip');
  tip.textContent = text;
  tip.hidden = false;
  const left = Math.max(8, Math.min(x + 14, innerWidth - tip.offsetWidth - 8));
  const top = y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 12 : y + 18;
  tip.style.left = left + 'px';
  tip.style.top = Math.max(8, top) + 'px';
}
export function hideTip() { byId('tip').hidden = true; }
