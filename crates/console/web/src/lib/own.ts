// Access to own properties by external names: of objects, columns, and addresses.
//
// `record[name]` also finds inherited properties such as `constructor`, and an assignment to `__proto__` changes the
// prototype. Here `__proto__` is an ordinary key.

export function own<T>(record: Readonly<Record<string, T>>, name: string): T | undefined {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

export function setOwn(record: object, name: string, value: unknown): void {
  Object.defineProperty(record, name, { value, writable: true, enumerable: true, configurable: true });
}
