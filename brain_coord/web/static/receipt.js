// The verify forms: a receipt fetched with its key, by the operator, or given as text or file.

import { showVerdict } from "./verify.js";

const form = document.getElementById("verify");
const verdict = document.getElementById("verdict");

async function envelope() {
  const { receipt, open } = form.dataset;
  if (receipt || open) {
    const headers = open ? {} : { authorization: `Bearer ${form.elements.key.value}` };
    const reply = await fetch(open ?? receipt, { headers });
    const body = await reply.json();
    if (!reply.ok) throw new Error(body.error?.message ?? `status ${reply.status}`);
    return body;
  }
  const file = form.elements.file.files[0];
  return JSON.parse(form.elements.text.value.trim() || (file ? await file.text() : ""));
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  verdict.textContent = "Checking…";
  try {
    await showVerdict(verdict, await envelope(), form.dataset.signer);
  } catch (error) {
    const box = document.createElement("div");
    box.className = "verdict invalid";
    box.textContent = error instanceof SyntaxError ? "This is not JSON." : error.message;
    verdict.replaceChildren(box);
  }
});
