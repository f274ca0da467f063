// All resources that the user may list, by group.

import { useMemo, useState } from 'preact/hooks';
import { allows } from '../api/access';
import { discovery, type Resource } from '../api/discovery';
import { place } from '../state/router';
import { useStore } from '../state/store';
import { resourceHref } from './palette';
import { Problem } from './problem';
import { useRules } from './rules';

function byGroup(resources: Resource[]): [string, Resource[]][] {
  const groups = new Map<string, Resource[]>();
  for (const one of resources) groups.set(one.group, [...(groups.get(one.group) ?? []), one]);
  return [...groups.entries()];
}

export function Sidebar({ onGo }: { onGo: () => void }) {
  const { resources, error } = useStore(discovery);
  const here = useStore(place);
  const [all, setAll] = useState(false);
  const namespace = here.params.get('ns') ?? '';
  const rules = useRules(namespace);
  const [, group, version, plural] = here.path;
  const listed = useMemo(() => resources.filter((one) => one.preferred && one.verbs.includes('list')), [resources]);
  const permitted = useMemo(
    () => listed.filter((one) => rules === null || allows(rules, 'list', one)),
    [listed, rules],
  );
  const shown = all ? listed : permitted;
  return (
    <nav class="sidebar" aria-label="Resources">
      {error !== null && resources.length === 0 && <Problem error={error} />}
      {byGroup(shown).map(([name, members]) => {
        const isHere = name === (group === 'core' ? '' : group);
        return (
          <details key={name} open={isHere || name === '' || name === 'apps'}>
            <summary>{name === '' ? 'core' : name}</summary>
            <ul>
              {members.map((one) => {
                const current = isHere && one.plural === plural && one.version === version;
                return (
                  <li key={`${one.plural}/${one.version}`}>
                    <a href={resourceHref(one)} aria-current={current ? 'page' : undefined} onClick={onGo}>
                      {one.plural}
                      {one.stale && <small title="The server that has them is away"> ⚠</small>}
                    </a>
                  </li>
                );
              })}
            </ul>
          </details>
        );
      })}
      {permitted.length < listed.length && (
        <button type="button" class="quiet" aria-pressed={all} onClick={() => setAll(!all)}>
          {all ? 'Show what I may list' : `Show ${listed.length - permitted.length} more that I may not list`}
        </button>
      )}
    </nav>
  );
}
