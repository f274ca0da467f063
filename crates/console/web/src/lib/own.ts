// Own properties by names that come from outside: of objects, columns, addresses.
//
// `record[name]` also finds `constructor`, `toString` and all else that is inherited, and an assignment to `__proto__` changes what an
// object inherits. A key `__proto__` is a key like any other here.

export function own<T>(record: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

export function setOwn(record: object, name: string, value: unknown): void {
  Object.defineProperty(record, name, { value, writable: true, enumerable: true, configurable: true });
}
