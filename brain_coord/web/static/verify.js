// A receipt checked by the browser: canonical JSON (RFC 8785), SHA-256, the path to the signed root, Ed25519.
// The format is described in brain_coord/receipts/__init__.py. Nothing here trusts the coordinator.

const LINKED = ["body", "chain", "format", "prev", "seq"];
const MEMBERS = [...LINKED, "hash", "path", "public_key", "signature", "signer"].sort().join();
const HASH = /^[0-9a-f]{64}$/;
const KEY_ID = /^[0-9a-f]{16}$/;
const STEP = /^[LR][0-9a-f]{64}$/;

export class BadReceipt extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

/** RFC 8785: JSON.stringify writes numbers and texts as it wants them; members are ordered by UTF-16 code units. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value !== null && typeof value === "object") {
    const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
    return `{${members.join(",")}}`;
  }
  if (typeof value === "string" && !value.isWellFormed()) throw new BadReceipt("malformed", "a text in it is not Unicode");
  return JSON.stringify(value);
}

const bytesOfHex = (text) => Uint8Array.from(text.match(/../g), (pair) => Number.parseInt(pair, 16));
const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

function joined(...parts) {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

function bytesOfBase64(text, size, name) {
  let decoded = "";
  try {
    decoded = atob(text);
  } catch {}
  // Compared after encoding again: the last letter has bits that decoding ignores.
  if (decoded.length !== size || btoa(decoded) !== text) throw new BadReceipt("malformed", `the ${name} is not ${size} bytes in base64`);
  return Uint8Array.from(decoded, (letter) => letter.charCodeAt(0));
}

async function rootOf(hash, path) {
  if (!Array.isArray(path)) throw new BadReceipt("malformed", "the path is no list");
  let node = hash;
  for (const step of path) {
    if (typeof step !== "string" || !STEP.test(step)) throw new BadReceipt("malformed", "a step of the path is malformed");
    const sibling = bytesOfHex(step.slice(1));
    const pair = step[0] === "L" ? [sibling, node] : [node, sibling];
    node = await sha256(joined(Uint8Array.of(1), ...pair));
  }
  return node;
}

/**
 * Check one receipt. Returns its place in the chain and its signer; throws BadReceipt.
 * @param envelope the parsed receipt
 */
export async function verifyEnvelope(envelope) {
  if (!globalThis.crypto?.subtle) {
    throw new BadReceipt("no_webcrypto", "this browser checks signatures only on https pages and on localhost");
  }
  if (envelope === null || typeof envelope !== "object" || Object.keys(envelope).sort().join() !== MEMBERS) {
    throw new BadReceipt("malformed", "this is not a receipt: its members are not those of the format");
  }
  const { chain, format, seq, prev, hash, signer } = envelope;
  if (format !== "brain-receipt-1") throw new BadReceipt("unknown_format", "the format is not brain-receipt-1");
  if (typeof chain !== "string" || !KEY_ID.test(chain) || !Number.isSafeInteger(seq) || seq < 1) throw new BadReceipt("malformed", "the chain or the sequence number is malformed");
  if (!HASH.test(prev) || !HASH.test(hash)) throw new BadReceipt("malformed", "a hash is no SHA-256 in lower-case hex");
  const key = bytesOfBase64(envelope.public_key, 32, "public key");
  const signature = bytesOfBase64(envelope.signature, 64, "signature");
  if (hexOf(await sha256(key)).slice(0, 16) !== signer) throw new BadReceipt("signer_mismatch", "the signer’s id does not belong to the public key");
  const text = canonical(Object.fromEntries(LINKED.map((name) => [name, envelope[name]])));
  const digest = await sha256(new TextEncoder().encode(text));
  if (hexOf(digest) !== hash) throw new BadReceipt("hash_mismatch", "the hash does not match the content: the receipt was changed");
  const root = await rootOf(digest, envelope.path);
  const statement = joined(new TextEncoder().encode("brain-receipt v1"), Uint8Array.of(0), root);
  let good = false;
  try {
    const imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
    good = await crypto.subtle.verify("Ed25519", imported, signature, statement);
  } catch (error) {
    if (error.name === "NotSupportedError") throw new BadReceipt("no_ed25519", "this browser does not know Ed25519; use brain-coord receipts verify");
    throw new BadReceipt("bad_signature", "the public key is not usable");
  }
  if (!good) throw new BadReceipt("bad_signature", "the signature does not verify");
  return { chain, seq, signer, key: envelope.public_key };
}

/** Whether a signer is among the published keys of this coordinator. */
export async function isOurs(link, url) {
  try {
    const { keys, others = [] } = await (await fetch(url)).json();
    const published = [...keys, ...others.flatMap((each) => each.keys)];
    return published.some((each) => each.key_id === link.signer && each.public_key === link.key);
  } catch {
    return null;
  }
}

function line(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

/** Verify, and say in `place` what came of it. */
export async function showVerdict(place, envelope, signerUrl) {
  const box = document.createElement("div");
  try {
    const link = await verifyEnvelope(envelope);
    const ours = await isOurs(link, signerUrl);
    box.className = `verdict ${ours ? "valid" : "unsure"}`;
    box.append(line("strong", ours ? "Valid." : "The signature is right, but not by a key of this coordinator."));
    const list = document.createElement("ul");
    list.append(
      line("li", "SHA-256 over the canonical JSON matches the receipt’s hash"),
      line("li", `Ed25519 signature by ${link.signer}${ours ? ", a published key of this coordinator" : ""}`),
      line("li", `link ${link.seq} of chain ${link.chain}`),
    );
    box.append(list);
  } catch (error) {
    box.className = "verdict invalid";
    box.append(line("strong", `Not valid (${error.code ?? "error"}): `), line("span", error.message));
  }
  place.replaceChildren(box);
}
