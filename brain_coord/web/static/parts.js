// Details whose content is fetched when they are opened.

import { show } from "./morph.js";

export function watchParts(root) {
  root.addEventListener(
    "toggle",
    async (event) => {
      const details = event.target;
      const part = details.querySelector?.(":scope > .part");
      if (!details.open || !details.dataset.part || !part || part.hasAttribute("data-loaded")) return;
      const reply = await fetch(details.dataset.part);
      if (!reply.ok) return; // the link in it still leads to the page
      const links = [...part.childNodes];
      show(part, await reply.text());
      part.append(...links);
      part.setAttribute("data-loaded", "");
    },
    true, // toggle does not bubble
  );
}
