// The value of the last rendering, for callbacks that live longer than one.

import { useRef } from 'preact/hooks';

export function useLatest<T>(value: T): { readonly current: T } {
  const latest = useRef(value);
  latest.current = value;
  return latest;
}
