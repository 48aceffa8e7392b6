// When this tab may work: the owner's switches, and what the browser says of battery and visibility.

const MOST_WAIT_MS = 20000;

/** Calls `changed(reason)` with why no work may come now, or null, whenever that changes. */
export class Rules {
  constructor(form, changed) {
    this.form = form;
    this.changed = changed;
    this.paused = false;
    this.resting = false;
    this.until = 0;
    this.battery = null;
    this.told = undefined;
    form.addEventListener("change", () => this.look());
    document.addEventListener("visibilitychange", () => this.look());
    navigator.getBattery?.().then((battery) => {
      this.battery = battery;
      battery.addEventListener("chargingchange", () => this.look());
      this.look();
    });
  }

  /** Share of the time in which work may run, 0 to 1. */
  get duty() {
    return Number(this.form.elements.duty.value) / 100;
  }

  why() {
    const { hidden, battery } = this.form.elements;
    if (this.paused) return "Paused by you.";
    if (hidden.checked && document.hidden) return "Waits: this tab is hidden.";
    if (battery.checked && this.battery && !this.battery.charging) return "Waits: this machine runs on battery.";
    if (this.resting) return "Rests, to keep to the share of time you set.";
    return null;
  }

  look() {
    const why = this.why();
    if (why === this.told) return;
    this.told = why;
    this.changed(why);
  }

  pause(paused) {
    this.paused = paused;
    this.look();
  }

  /** Work ran for so long; rest for as long as the duty limit asks, on top of what rest was due already. */
  worked(ms) {
    const rest = ms * (1 / this.duty - 1);
    if (rest < 1) return;
    const now = performance.now();
    this.until = Math.max(this.until, now) + rest;
    this.resting = true;
    this.look();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.resting = false;
      this.look();
    }, this.until - now);
  }

  /** The end of the rest, or as much of it as a coordinator has patience for within an answer. */
  async rested() {
    const left = Math.min(this.until - performance.now(), MOST_WAIT_MS);
    if (left > 0) await new Promise((over) => setTimeout(over, left));
  }
}
