// Numbers, rates and times as text.
const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const TIME = new Intl.DateTimeFormat("en-GB", { dateStyle: "short", timeStyle: "medium" });
const CLOCK = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : NUMBER.format(value);
}

function scaled(value: number, step: number, units: string[]): string {
  let index = 0;
  while (value >= step && index < units.length - 1) {
    value /= step;
    index += 1;
  }
  return `${NUMBER.format(value)} ${units[index]}`;
}

export function bitRate(bps: number | null | undefined): string {
  return bps === null || bps === undefined ? "–" : scaled(bps, 1000, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
}

export function octets(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : scaled(value, 1000, ["B", "kB", "MB", "GB", "TB", "PB"]);
}

export function micros(us: number | null | undefined): string {
  return us === null || us === undefined ? "–" : scaled(us, 1000, ["µs", "ms", "s"]);
}

export function percent(ratio: number | null | undefined): string {
  return ratio === null || ratio === undefined ? "–" : `${NUMBER.format(100 * ratio)} %`;
}

export function time(text: string | null | undefined): string {
  const date = text ? new Date(text) : undefined;
  return date && !Number.isNaN(date.getTime()) ? TIME.format(date) : "–";
}

export function clock(text: string): string {
  if (text === "") return "earlier";
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? text : CLOCK.format(date);
}
