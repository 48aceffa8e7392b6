// The link to the coordinator and the slots that carry work: the protocol of Brain Nodes, from inside a browser.

import { base64, prove } from "./identity.js";

const FRAME_BYTES = 256 * 1024;
const BACK_OFF_MS = [1000, 60000];
const SLOT_AGAIN_MS = 250;
const LOOK_MS = 5000;
const PINGS_MISSED = 3;

const looks = (ping_s) => Math.ceil((PINGS_MISSED * ping_s * 1000) / LOOK_MS);

function socketUrl(base, path) {
  const url = new URL(base + path, location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url;
}

/** Keeps one link open until it is stopped; `on` is told of everything that happens. */
export class Link {
  constructor(base, who, describe, run, on) {
    Object.assign(this, { base, who, describe, run, on });
    this.stopped = false;
    this.draining = false;
    this.delay = BACK_OFF_MS[0];
    this.slotDelay = SLOT_AGAIN_MS;
    this.slots = new Set();
    this.connect();
  }

  connect() {
    this.refused = false;
    this.quiet = 0;
    this.patience = looks(10);
    this.socket = new WebSocket(socketUrl(this.base, "/browser/v1/link"));
    this.socket.onmessage = (event) => {
      this.quiet = 0;
      this.take(JSON.parse(event.data));
    };
    this.socket.onclose = () => this.closed();
    this.watch = setInterval(() => this.look(), LOOK_MS);
  }

  /** A connection that died in a sleep, or in a router, tells no end. Looks are counted: clocks jump, and a frozen tab has none. */
  look() {
    this.quiet += 1;
    if (this.quiet <= this.patience) return;
    this.socket.onmessage = this.socket.onclose = null;
    this.socket.close();
    this.closed();
  }

  send(type, members = {}) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type, ...members }));
  }

  async take(message) {
    if (message.type === "challenge") {
      const hello = {
        type: "hello",
        protocol: message.protocol,
        node_id: this.who.id,
        public_key: base64(this.who.publicKey),
        ...this.describe(),
      };
      this.send("hello", { ...hello, proof: await prove(this.who, message, hello) });
    } else if (message.type === "welcome") {
      this.delay = BACK_OFF_MS[0];
      this.patience = looks(message.ping_s);
      this.ticket = message.slot_ticket;
      this.wanted = this.describe().offer.slots;
      this.openSlots();
      if (this.draining) this.drain(true);
      this.on.welcome(message);
    } else if (message.type === "refused") {
      this.refused = true;
      this.delay = Math.max(this.delay, 2 * 1000 * (message.retry_after_s ?? 0)); // up to half of it is taken off below
      if (!message.retry) this.stop();
      this.on.refused(message);
    } else if (message.type === "ping") {
      this.send("pong", { n: message.n });
    } else if (message.type === "notice") {
      this.on.notice(message);
    } else if (message.type === "open_slots") {
      this.openSlots();
    }
  }

  openSlots() {
    while (!this.stopped && this.ticket && this.slots.size < this.wanted) {
      const slot = new Slot(this);
      this.slots.add(slot);
    }
  }

  slotClosed(slot) {
    this.slots.delete(slot);
    if (this.socket.readyState !== WebSocket.OPEN || !this.ticket) return;
    setTimeout(() => this.openSlots(), this.slotDelay);
    this.slotDelay = Math.min(BACK_OFF_MS[1], this.slotDelay * 2);
  }

  /** Tell the coordinator whether new work may come. */
  drain(draining) {
    this.draining = draining;
    this.send("heartbeat", { draining });
  }

  closed() {
    this.ticket = null;
    clearInterval(this.watch);
    for (const slot of this.slots) slot.close();
    if (this.stopped) return;
    if (!this.refused) this.on.closed();
    setTimeout(() => this.stopped || this.connect(), this.delay * (0.5 + Math.random() / 2));
    this.delay = Math.min(BACK_OFF_MS[1], this.delay * 2);
  }

  stop() {
    this.stopped = true;
    clearInterval(this.watch);
    for (const slot of this.slots) slot.close();
    this.socket.close();
  }
}

/** One connection that carries one job at a time. */
class Slot {
  constructor(link) {
    this.link = link;
    this.job = null;
    // A browser cannot send the ticket as a header, and a URL ends up in logs.
    this.socket = new WebSocket(socketUrl(link.base, "/browser/v1/slot"), ["brain.slot.v1", link.ticket]);
    this.socket.binaryType = "arraybuffer";
    this.socket.onopen = () => (link.slotDelay = SLOT_AGAIN_MS);
    this.socket.onmessage = (event) => this.take(event.data);
    this.socket.onclose = () => {
      this.job?.cancel.abort();
      link.slotClosed(this);
    };
  }

  take(data) {
    if (typeof data !== "string") {
      const { job } = this;
      if (!job) return;
      job.body.set(new Uint8Array(data), job.received);
      job.received += data.byteLength;
      if (job.received === job.body_bytes) this.start();
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "job") {
      this.job = { ...message, body: new Uint8Array(message.body_bytes), received: 0, cancel: new AbortController() };
      if (message.body_bytes === 0) this.start();
    } else if (message.type === "cancel" && this.job?.id === message.id) {
      this.job.cancel.abort();
      this.say("end", { ok: false, cause: "cancelled" });
      this.job = null;
    }
  }

  say(type, members) {
    if (this.socket.readyState === WebSocket.OPEN) {
      this.socket.send(JSON.stringify({ type, id: this.job.id, ...members }));
    }
  }

  async start() {
    const { job } = this;
    this.say("accepted");
    let end = { ok: true };
    try {
      const { status, content_type, body } = await this.link.run(job.path, job.body, job.cancel.signal);
      if (this.job !== job) return;
      this.say("head", { status, content_type });
      for (let at = 0; at < body.byteLength; at += FRAME_BYTES) {
        this.socket.send(body.subarray(at, Math.min(body.byteLength, at + FRAME_BYTES)));
      }
    } catch (error) {
      if (!this.link.stopped && !job.cancel.signal.aborted) this.link.on.fault(error);
      end = { ok: false, cause: "engine_lost" };
    }
    if (this.job !== job) return;
    this.say("end", end);
    this.job = null;
  }

  close() {
    this.socket.close();
  }
}
