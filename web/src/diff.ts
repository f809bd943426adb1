// Differences of two texts by lines: the longest common subsequence between equal ends.
export interface Line {
  kind: "same" | "old" | "new";
  text: string;
  // Line number in the text that has the line; of a common line, in the new text.
  number: number;
}

// Above this product of lines the middle is shown as removed and added as a whole.
const CELLS = 4_000_000;

export function diff(oldText: string, newText: string): Line[] {
  const a = oldText.split("\n");
  const b = newText.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail += 1;
  const lines: Line[] = b.slice(0, head).map((text, i) => ({ kind: "same", text, number: i + 1 }));
  lines.push(...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail), head));
  const from = b.length - tail;
  lines.push(...b.slice(from).map((text, i): Line => ({ kind: "same", text, number: from + i + 1 })));
  return lines;
}

function middle(a: string[], b: string[], head: number): Line[] {
  const oldLine = (i: number): Line => ({ kind: "old", text: a[i]!, number: head + i + 1 });
  const newLine = (j: number): Line => ({ kind: "new", text: b[j]!, number: head + j + 1 });
  if (a.length * b.length > CELLS) return [...a.keys()].map(oldLine).concat([...b.keys()].map(newLine));
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const skip = Math.max(longest[(i + 1) * width + j]!, longest[i * width + j + 1]!);
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1]! + 1 : skip;
    }
  }
  const lines: Line[] = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", text: b[j]!, number: head + j + 1 });
      i += 1;
      j += 1;
    } else if (i < a.length && (j === b.length || longest[(i + 1) * width + j]! >= longest[i * width + j + 1]!)) {
      lines.push(oldLine(i++));
    } else {
      lines.push(newLine(j++));
    }
  }
  return lines;
}

// The changed lines with some lines around them; undefined stands for lines left out.
export function context(lines: Line[], around = 3): (Line | undefined)[] {
  const near = lines.map((_, index) =>
    lines.slice(Math.max(0, index - around), index + around + 1).some((line) => line.kind !== "same"),
  );
  const shown: (Line | undefined)[] = [];
  lines.forEach((line, index) => {
    if (near[index]) shown.push(line);
    else if (shown.length > 0 && shown.at(-1) !== undefined) shown.push(undefined);
  });
  if (shown.at(-1) === undefined) shown.pop();
  return shown;
}
