// The field for a list's namespace. It suggests the existing namespaces if the user may list them.

import { getJson, METADATA_LIST } from '../api/client';
import type { ObjectList } from '../api/types';
import { go, place as current, type Place, withParams } from '../state/router';
import { Suggest, type Suggestion } from './suggest';

const SHOWN = 12;

async function suggested(text: string, signal: AbortSignal): Promise<Suggestion[]> {
  const search = new URLSearchParams({ limit: String(SHOWN) });
  if (text !== '') search.set('keelson.io/search', text);
  const path = `/api/v1/namespaces?${search.toString()}`;
  const list = await getJson<ObjectList>(path, { accept: METADATA_LIST, signal });
  const names = list.items.map(({ metadata }) => ({ value: metadata.name, label: metadata.name }));
  return names;
}

export function NamespaceField({ place }: { place: Place }) {
  const value = place.params.get('ns') ?? '';
  return (
    <Suggest
      label="Namespace"
      placeholder="All namespaces ( N )"
      shortcut="N"
      value={value}
      suggestions={suggested}
      onTake={(text) => go(withParams(current.get(), { ns: text, page: '' }))}
    />
  );
}
