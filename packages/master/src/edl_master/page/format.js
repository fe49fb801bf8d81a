// Numbers, times and names as a person reads them. No DOM here.

export const UNKNOWN = "–";

const grouped = new Intl.NumberFormat("en");

/** A number of protobuf's JSON, where 64-bit integers and NaN are strings; NaN if absent. */
export function number(value) {
  return value === undefined || value === null || value === "" ? NaN : Number(value);
}

/** A whole number with its thousands apart; exact also beyond 2^53. */
export function count(value) {
  const text = String(value ?? "");
  if (/^-?\d+$/.test(text)) return grouped.format(BigInt(text));
  const rounded = Math.round(number(value));
  return Number.isFinite(rounded) ? grouped.format(rounded) : UNKNOWN;
}

/** A measured value with four significant digits. */
export function measure(value) {
  const x = number(value);
  if (Number.isNaN(x)) return UNKNOWN;
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) {
    const [mantissa, exponent] = x.toExponential(2).split("e");
    return `${minus(mantissa)}e${minus(exponent.replace("+", ""))}`;
  }
  const decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 4;
  return minus(grouping(x, decimals));
}

/** A rate per second, with as many digits as carry meaning. */
export function rate(value) {
  const x = number(value);
  if (!Number.isFinite(x)) return UNKNOWN;
  return grouping(x, x >= 100 || x === 0 ? 0 : x >= 10 ? 1 : 2);
}

/** A share as percentage; never rounded up to 100. */
export function percent(share, decimals = 1) {
  if (!Number.isFinite(share)) return UNKNOWN;
  const unit = 10 ** decimals;
  const floored = Math.floor(Math.max(0, share) * 100 * unit + 1e-9) / unit;
  return floored >= 100 ? "100" : floored.toFixed(decimals);
}

/** A length of time in its two largest units. */
export function duration(seconds) {
  const s = number(seconds);
  if (!Number.isFinite(s) || s < 0) return UNKNOWN;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  const whole = Math.round(s);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(s / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  const hours = Math.round(s / 3600);
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Time of day, as the reader's own clock shows it. */
export function clock(when) {
  const date = new Date(when);
  if (!when || Number.isNaN(date.getTime())) return UNKNOWN;
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(twoDigits).join(":");
}

/** Time of day, with the date in front unless it is today's. */
export function moment(when, now = new Date()) {
  const date = new Date(when);
  if (!when || Number.isNaN(date.getTime())) return UNKNOWN;
  if (date.toDateString() === now.toDateString()) return clock(date);
  const day = [date.getFullYear(), date.getMonth() + 1, date.getDate()].map(twoDigits).join("-");
  return `${day} ${clock(date)}`;
}

/** Time of day without seconds, with the date in front unless it is today's. */
export function hour(when, now = new Date()) {
  return moment(when, now).replace(/:\d\d$/, "");
}

/** An enumeration's name or a stable key as words: EVALUATION_SUMMARY → evaluation summary. */
export function words(name) {
  return String(name ?? "").toLowerCase().replaceAll("_", " ").replaceAll("-", " ");
}

/** One thing or several: plural(2, "worker") → 2 workers. */
export function plural(n, noun) {
  return `${count(n)} ${noun}${Number(n) === 1 ? "" : "s"}`;
}

/** Steps of an axis of seconds: full seconds, minutes, hours, days. */
export const TIME_STEPS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2419200,
];

/** A value at an axis whose ticks are `step` apart: as many digits as tell them apart. */
export function tickNumber(value, step) {
  if (value === 0) return "0";
  if (step < 1e-4) return minus(value.toExponential(1).replace("e+", "e"));
  const size = Math.abs(value);
  const [divisor, unit] =
    step >= 1e6 || size >= 1e7 ? [1e6, "M"] : step >= 500 || size >= 1e5 ? [1e3, "k"] : [1, ""];
  const fine = step / divisor;
  let digits = Math.max(0, -Math.floor(Math.log10(fine) + 1e-9));
  if (Math.abs(fine * 10 ** digits - Math.round(fine * 10 ** digits)) > 1e-6) digits += 1;
  return minus((value / divisor).toFixed(digits)) + unit;
}

/** A length of time at an axis whose ticks are `step` seconds apart. */
export function tickTime(seconds, step) {
  if (seconds === 0) return "0";
  if (step >= 86400) return `${seconds / 86400} d`;
  if (step >= 3600) return `${seconds / 3600} h`;
  const [large, small, unit] =
    step >= 60 ? [Math.floor(seconds / 3600), Math.round((seconds % 3600) / 60), "min"]
      : [Math.floor(seconds / 60), Math.round(seconds % 60), "s"];
  if (large === 0) return `${small} ${unit}`;
  if (small === 0) return `${large} ${unit === "s" ? "min" : "h"}`;
  return `${large}:${twoDigits(small)} ${unit === "s" ? "min" : "h"}`;
}

function grouping(x, decimals) {
  return x.toLocaleString("en", {
    minimumFractionDigits: decimals,
    maximumFractionDigits: decimals,
  });
}

const minus = (text) => text.replaceAll("-", "−");
const twoDigits = (n) => String(n).padStart(2, "0");
