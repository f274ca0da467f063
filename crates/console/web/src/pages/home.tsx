// The first page: links to the other pages.

import { useMemo } from 'preact/hooks';
import { allows } from '../api/access';
import { discovery, isBuiltIn, type Resource } from '../api/discovery';
import { useStore } from '../state/store';
import { resourceHref } from '../ui/palette';
import { useRules } from '../ui/rules';

const USUAL = ['namespaces', 'pods', 'deployments', 'services', 'configmaps', 'secrets', 'nodes', 'events'];

export function HomePage() {
  const { resources: all } = useStore(discovery);
  const rules = useRules('');
  const resources = useMemo(
    () => all.filter((one) => rules === null || rules.incomplete || allows(rules, 'list', one)),
    [all, rules],
  );
  const usual = useMemo(
    () =>
      USUAL.map((plural) => resources.find((one) => one.plural === plural && one.preferred)).filter(
        (one): one is Resource => one !== undefined,
      ),
    [resources],
  );
  const custom = useMemo(
    () => resources.filter((one) => one.preferred && !isBuiltIn(one.group) && one.verbs.includes('list')),
    [resources],
  );
  const card = (one: Resource) => (
    <li key={`${one.group}/${one.plural}`}>
      <a href={resourceHref(one)}>
        <strong>{one.plural}</strong>
        <small>{one.group === '' ? one.version : `${one.group}/${one.version}`}</small>
      </a>
    </li>
  );
  return (
    <section class="home">
      <h1 tabIndex={-1}>Resources</h1>
      <p>
        Press <kbd>:</kbd> to go to any resource, <kbd>?</kbd> for all keys.
      </p>
      {rules !== null && all.length > 0 && usual.length === 0 && custom.length === 0 && (
        <p class="notice">
          You may list nothing in all namespaces at once, nor in default. Go to a resource and choose a namespace there.
        </p>
      )}
      <ul class="cards">{usual.map(card)}</ul>
      {custom.length > 0 && (
        <>
          <h2>Custom and aggregated</h2>
          <ul class="cards">{custom.map(card)}</ul>
        </>
      )}
    </section>
  );
}
