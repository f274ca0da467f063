// The parts of Node.js that the tests use.

declare module 'node:test' {
  type Run = () => void | Promise<void>;
  export default function test(name: string, run: Run): void;
  export default function test(name: string, options: { skip: boolean }, run: Run): void;
}

declare module 'node:assert/strict' {
  const assert: {
    equal(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    throws(run: () => unknown, expected?: RegExp): void;
    rejects(run: Promise<unknown> | (() => Promise<unknown>), expected?: RegExp, message?: string): Promise<void>;
  };
  export default assert;
}

declare module 'node:fs' {
  export function readFileSync(path: string, encoding: 'utf8'): string;
}

declare const process: { env: Record<string, string | undefined> };
