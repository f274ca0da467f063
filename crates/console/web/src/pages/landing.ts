// Finds the namespace of a user who may not list all of them, so that the first page is not empty.

import { allows, mayI, rulesIn } from '../api/access';
import { discovery } from '../api/discovery';
import { session } from '../api/session';
import { choices, chooseNamespaces } from '../state/choices';

/** The namespaces that the user's name tells of: that of a service account, or one of the user's own name. */
function guessed(username: string): string[] {
  const [system, kind, namespace] = username.split(':');
  const own = system === 'system' && kind === 'serviceaccount' && namespace !== undefined ? [namespace] : [];
  return [...own, ...choices.get().recentNamespaces, 'default'];
}

async function isUseful(namespace: string): Promise<boolean> {
  const rules = await rulesIn(namespace);
  return discovery.get().resources.some((one) => one.namespaced && allows(rules, 'list', one));
}

/** Chooses a namespace in which the user may list something, if all namespaces can't be listed and none is chosen. */
export async function landInNamespace(): Promise<void> {
  if (choices.get().namespaces.length > 0) return;
  const resource = { group: '', version: 'v1', plural: 'namespaces', kind: 'Namespace', namespaced: false };
  const known = {
    ...resource,
    shortNames: [],
    categories: [],
    verbs: [],
    subresources: [],
    preferred: true,
    stale: false,
  };
  const pods = { ...known, plural: 'pods', kind: 'Pod', namespaced: true };
  const [all, allPods] = await Promise.all(
    [known, pods].map((one) => mayI({ verb: 'list', resource: one, namespace: '' }).catch(() => true)),
  );
  if (all === true || allPods === true) return;
  await discovered();
  for (const namespace of new Set(guessed(session.get().user?.username ?? ''))) {
    if (await isUseful(namespace).catch(() => false)) {
      if (choices.get().namespaces.length === 0) chooseNamespaces([namespace]);
      return;
    }
  }
}

function discovered(): Promise<void> {
  return new Promise((resolve) => {
    const check = () => {
      if (!discovery.get().loaded) return;
      stop();
      resolve();
    };
    const stop = discovery.follow(check);
    check();
  });
}
