// Axes: round tick values and their labels. No DOM here.

const DAY_S = 86400;
const TIME_STEPS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
  3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
];

/** Distance between ticks: 1, 2, 2.5 or 5 times a power of ten; at most about `wanted` ticks. */
export function niceStep(span, wanted, whole = false) {
  const raw = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const candidates = whole && power < 10 ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  const factor = candidates.find((c) => c * power >= raw * (1 - 1e-9)) ?? 10;
  return whole ? Math.max(1, factor * power) : factor * power;
}

/** Multiples of `step` within [low, high], free of binary dust. */
export function multiples(low, high, step) {
  const digits = Math.min(20, Math.max(0, 2 - Math.floor(Math.log10(step))));
  const ticks = [];
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  for (let n = first; n <= last; n += 1) ticks.push(Number((n * step).toFixed(digits)));
  return ticks;
}

/** Axis for measured values: its bounds are ticks themselves. */
export function valueAxis(low, high, wanted) {
  if (low === high) {
    const share = low >= 0 && low <= 1; // accuracy and the like stay within 0 and 1
    const room = share ? 0.1 : Math.abs(low) * 0.1;
    return valueAxis(
      share ? Math.max(0, low - room) : low - room,
      share ? Math.min(1, high + room) : high + room,
      wanted,
    );
  }
  const step = niceStep(high - low, wanted);
  const bottom = Math.floor(low / step + 1e-9) * step;
  const top = Math.ceil(high / step - 1e-9) * step;
  const ticks = multiples(bottom, top, step);
  return { low: ticks[0], high: ticks.at(-1), ticks, label: (value) => decimal(value, step) };
}

/** Axis for counts, such as updates: bounds as given, ticks are whole numbers. */
export function countAxis(low, high, wanted) {
  const end = high > low ? high : low + 1;
  const step = niceStep(end - low, wanted, true);
  const ticks = multiples(low, end, step);
  return { low, high: end, ticks, label: (value) => decimal(value, step) };
}

/** Axis for seconds since a start: ticks at full seconds, minutes, hours, days. */
export function timeAxis(low, high, wanted) {
  const end = high > low ? high : low + 1;
  const raw = (end - low) / Math.max(1, wanted);
  const days = () => niceStep((end - low) / DAY_S, wanted, true);
  const step = TIME_STEPS_S.find((s) => s >= raw) ?? days() * DAY_S;
  const ticks = multiples(low, end, step);
  return { low, high: end, ticks, label: (value) => shortTime(value, step) };
}

function decimal(value, step) {
  if (value === 0) return "0";
  if (step < 1e-4) return value.toExponential(1).replace("e+", "e").replaceAll("-", "−");
  const size = Math.abs(value);
  const [divisor, unit] =
    step >= 1e6 || size >= 1e7 ? [1e6, "M"] : step >= 500 || size >= 1e5 ? [1e3, "k"] : [1, ""];
  const fine = step / divisor;
  let digits = Math.max(0, -Math.floor(Math.log10(fine) + 1e-9));
  if (Math.abs(fine * 10 ** digits - Math.round(fine * 10 ** digits)) > 1e-6) digits += 1;
  return (value / divisor).toFixed(digits).replace("-", "−") + unit;
}

function shortTime(seconds, step) {
  if (seconds === 0) return "0";
  if (step >= DAY_S) return `${seconds / DAY_S} d`;
  if (step >= 3600) return `${seconds / 3600} h`;
  const [large, small, unit] =
    step >= 60 ? [Math.floor(seconds / 3600), Math.round((seconds % 3600) / 60), "min"]
      : [Math.floor(seconds / 60), Math.round(seconds % 60), "s"];
  if (large === 0) return `${small} ${unit}`;
  if (small === 0) return `${large} ${unit === "s" ? "min" : "h"}`;
  return `${large}:${String(small).padStart(2, "0")} ${unit === "s" ? "min" : "h"}`;
}
