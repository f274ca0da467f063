// The user's rights, which determine the shown actions.

import { useEffect, useState } from 'preact/hooks';
import { rulesIn, type Rules } from '../api/access';

/** What the user may do in a namespace and in the whole cluster. */
export function useRules(namespace: string): Rules | null {
  const [rules, setRules] = useState<Rules | null>(null);
  useEffect(() => {
    let current = true;
    rulesIn(namespace === '' ? 'default' : namespace)
      .then((found) => current && setRules(found))
      // Without rules everything is shown, and a forbidden request reports its own error.
      .catch(() => current && setRules(null));
    return () => {
      current = false;
    };
  }, [namespace]);
  return rules;
}
