// The parts of Node.js that the tests use.

declare module 'node:test' {
  export default function test(name: string, run: () => void | Promise<void>): void;
}

declare module 'node:assert/strict' {
  const assert: {
    equal(actual: unknown, expected: unknown, message?: string): void;
    deepEqual(actual: unknown, expected: unknown, message?: string): void;
    throws(run: () => unknown, expected?: RegExp): void;
    rejects(run: () => Promise<unknown>, expected?: RegExp): Promise<void>;
  };
  export default assert;
}
