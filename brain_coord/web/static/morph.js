// HTML from this coordinator into the page, changing only what differs: focus, open details and a reader's place stay.

const policy = globalThis.trustedTypes
  ? trustedTypes.createPolicy("brain", { createHTML: (text) => text })
  : { createHTML: (text) => text };

/** The elements in a piece of HTML. The only place where text becomes markup; it must come from this coordinator's templates. */
export function elements(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content;
}

function attributes(from, to) {
  for (const { name, value } of [...to.attributes]) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    // Whether details are open, and which part was loaded into them, is the reader's doing.
    if (!to.hasAttribute(name) && name !== "open" && name !== "data-loaded") from.removeAttribute(name);
  }
}

/** Make `from` look like `to`. */
export function morph(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
    from.replaceWith(to);
    return;
  }
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.nodeValue !== to.nodeValue) from.nodeValue = to.nodeValue;
    return;
  }
  if (from.hasAttribute("data-loaded") || from.id === "live") return;
  attributes(from, to);
  children(from, to);
}

/** Make the children of `from` look like those of `to`. */
export function children(from, to) {
  const wanted = [...to.childNodes];
  const present = [...from.childNodes];
  wanted.forEach((node, index) => {
    if (index < present.length) morph(present[index], node);
    else from.append(node);
  });
  present.slice(wanted.length).forEach((node) => node.remove());
}

/** Put HTML in an element's place, or what is in it in the place of its content. */
export function show(element, html) {
  element.replaceChildren(elements(html));
}
