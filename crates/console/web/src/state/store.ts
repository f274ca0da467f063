// A value with subscribers: components render again when it changes.

import { useLayoutEffect, useState } from 'preact/hooks';

export interface Store<T> {
  get(): T;
  set(value: T): void;
  follow(changed: () => void): () => void;
}

export function store<T>(first: T): Store<T> {
  let value = first;
  const followers = new Set<() => void>();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      followers.forEach((changed) => changed());
    },
    follow(changed) {
      followers.add(changed);
      return () => followers.delete(changed);
    },
  };
}

export function useStore<T>(of: Store<T>): T {
  const [value, setValue] = useState(() => of.get());
  useLayoutEffect(() => {
    const changed = () => setValue(() => of.get());
    changed();
    return of.follow(changed);
  }, [of]);
  return value;
}
