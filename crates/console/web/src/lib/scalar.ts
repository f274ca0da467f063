// The types of plain YAML scalars by the rules of go-yaml, which kubectl and the server use. The server's YAML writer
// (`codec/src/yaml/scalar.rs`) has the same rules, and one table tests both.

const WORDS = new Set(
  (
    '~ null Null NULL y Y yes Yes YES true True TRUE on On ON n N no No NO false False FALSE off Off OFF ' +
    '.nan .NaN .NAN .inf .Inf .INF +.inf +.Inf +.INF -.inf -.Inf -.INF <<'
  )
    .split(' ')
    .concat(''),
);
const INTEGER = /^([-+]?)(0[xX][\da-fA-F]+|0[oO]?[0-7]+|0[bB][01]+|0|[1-9]\d*)$/;
const FLOAT = /^[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?$/;
const LARGEST = 2n ** 64n;
const SMALLEST = -(2n ** 63n);

/** The number that a plain scalar is; undefined where it is none. */
export function numberIn(text: string): bigint | number | undefined {
  if (text.startsWith('.')) return FLOAT.test(text) ? Number(text) : undefined;
  if (!/^[-+\d]/.test(text)) return undefined;
  const plain = text.replaceAll('_', '');
  const [, sign = '', digits = ''] = INTEGER.exec(plain) ?? [];
  if (digits !== '') {
    // An octal number needs no `o` after the leading zero.
    const magnitude = BigInt(/^0[0-7]+$/.test(digits) ? `0o${digits}` : digits.toLowerCase());
    const value = sign === '-' ? -magnitude : magnitude;
    if (value < LARGEST && value >= SMALLEST) return value;
  }
  const float = FLOAT.test(plain) ? Number(plain) : undefined;
  return float !== undefined && Number.isFinite(float) ? float : undefined;
}

/** Whether a text stays one where it stands without quotes. */
export function staysText(text: string): boolean {
  return !WORDS.has(text) && numberIn(text) === undefined;
}

// Control characters, Unicode line separators, noncharacters, and a tab that indents the first word of several lines.
const ODD = /[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|^[\n ]*\t/;

const ESCAPES: Record<string, string> = {
  '"': '\\"',
  '\\': '\\\\',
  '\n': '\\n',
  '\t': '\\t',
  '\r': '\\r',
  '\u0085': '\\N',
  '\u00a0': '\\_',
  '\u2028': '\\L',
  '\u2029': '\\P',
};

/** Whether a text needs the quotes of `quoted`: what else needs some is known to the writer. */
export function needsQuotes(text: string): boolean {
  return !staysText(text) || ODD.test(text);
}

/** A text between double quotes. */
export function quoted(text: string): string {
  const escaped = Array.from(text, (char) => {
    const known = ESCAPES[char];
    if (known !== undefined) return known;
    if (!ODD.test(char)) return char;
    const code = char.charCodeAt(0);
    return code < 0x100 ? `\\x${hex(code, 2)}` : `\\u${hex(code, 4)}`;
  });
  return `"${escaped.join('')}"`;
}

function hex(code: number, digits: number): string {
  return code.toString(16).toUpperCase().padStart(digits, '0');
}
