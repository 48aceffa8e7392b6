// The tab's identity: an Ed25519 key that never leaves this browser, not even to this page's own code.

const DATABASE = "brain-lend";
const STORE = "keys";

function settled(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

async function keys(mode, work) {
  const opening = indexedDB.open(DATABASE, 1);
  opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
  const database = await settled(opening);
  try {
    return await settled(work(database.transaction(STORE, mode).objectStore(STORE)));
  } finally {
    database.close();
  }
}

export const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
export const base64 = (bytes) => btoa(String.fromCharCode(...bytes));
export const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

/** The key pair of this browser for this coordinator, made at the first call. */
export async function identity() {
  let pair = await keys("readonly", (store) => store.get("tab"));
  if (!pair) {
    pair = await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]);
    await keys("readwrite", (store) => store.put(pair, "tab"));
  }
  const publicKey = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  const id = "N-" + hex(await sha256(publicKey)).slice(0, 16).toUpperCase();
  return { pair, publicKey, id };
}

/** The same text for the same value on both sides: members sorted by name. */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value).sort();
  return `{${members.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

/** The proof of a hello against one challenge. */
export async function prove({ pair }, challenge, hello) {
  const text = new TextEncoder();
  const head = text.encode(`brain-node hello v1\0\0${challenge.coordinator_key}\0${challenge.nonce}\0`);
  const digest = await sha256(text.encode(canonical(hello)));
  const statement = new Uint8Array([...head, ...digest]);
  return base64(new Uint8Array(await crypto.subtle.sign("Ed25519", pair.privateKey, statement)));
}
