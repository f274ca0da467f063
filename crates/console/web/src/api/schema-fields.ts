// Fields and their meaning by the schema of a kind, for completion and explanations in the editor.

import { useCallback, useEffect, useState } from 'preact/hooks';
import type { Hint } from '../editor';
import { isMap } from '../lib/json';
import { own } from '../lib/own';
import { getJson } from './client';
import { apiPath } from './paths';
import type { Json, JsonObject } from './types';

interface Document {
  components?: { schemas?: JsonObject };
}

interface Kind {
  schemas: JsonObject;
  root: JsonObject;
}

const documents = new Map<string, Promise<Document>>();

function documentOf(apiVersion: string): Promise<Document> {
  const [group, version] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
  const path = apiPath('openapi', 'v3', ...(group === '' ? ['api'] : ['apis', group ?? '']), version ?? '');
  const before = documents.get(path);
  if (before !== undefined) return before;
  const read = getJson<Document>(path).catch(() => {
    documents.delete(path);
    return {};
  });
  documents.set(path, read);
  return read;
}

async function kindOf(apiVersion: string, kind: string): Promise<Kind | null> {
  const schemas = (await documentOf(apiVersion)).components?.schemas ?? {};
  const [group, version] = apiVersion.includes('/') ? apiVersion.split('/') : ['', apiVersion];
  const root = Object.values(schemas).find((schema) => {
    const kinds = isMap(schema) ? own(schema, 'x-kubernetes-group-version-kind') : undefined;
    const is = (one: Json) =>
      isMap(one) && own(one, 'group') === group && own(one, 'version') === version && own(one, 'kind') === kind;
    return Array.isArray(kinds) && kinds.length === 1 && kinds.some(is);
  });
  return isMap(root) ? { schemas, root } : null;
}

/** The schema that a reference leads to. */
function resolved(kind: Kind, schema: Json | undefined): JsonObject {
  let found = schema;
  for (let depth = 0; depth < 10; depth += 1) {
    if (!isMap(found)) return {};
    const of = own(found, '$ref');
    const all = own(found, 'allOf');
    if (typeof of === 'string') found = own(kind.schemas, of.slice(of.lastIndexOf('/') + 1));
    else if (Array.isArray(all) && all.length === 1) found = { ...resolved(kind, all[0]), ...withoutAll(found) };
    else return found;
  }
  return {};
}

function withoutAll(schema: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(schema).filter(([name]) => name !== 'allOf'));
}

function typeOf(kind: Kind, schema: JsonObject): string {
  const type = own(schema, 'type');
  if (type === 'array') return `[]${typeOf(kind, resolved(kind, own(schema, 'items')))}`;
  return typeof type === 'string' ? type : 'object';
}

/** The fields at a path of keys; items of lists are stepped into without a key. */
export function fieldsAt(kind: Kind, path: string[]): Hint[] {
  let schema = kind.root;
  const intoItems = () => {
    while (own(schema, 'type') === 'array') schema = resolved(kind, own(schema, 'items'));
  };
  for (const name of path) {
    intoItems();
    const fields = own(schema, 'properties');
    const next = isMap(fields) ? own(fields, name) : undefined;
    schema = resolved(kind, next ?? own(schema, 'additionalProperties'));
  }
  intoItems();
  const fields = own(schema, 'properties');
  if (!isMap(fields)) return [];
  return Object.entries(fields).map(([name, field]) => {
    const found = resolved(kind, field);
    const info = own(isMap(field) ? field : {}, 'description') ?? own(found, 'description');
    return { name, detail: typeOf(kind, found), info: typeof info === 'string' ? info : '' };
  });
}

const HEAD = /^apiVersion:\s*["']?([\w./-]+)|^kind:\s*["']?(\w+)/gm;

/** The kinds of the documents in a text, as far as they can be told. */
function kindsIn(text: string): string[] {
  return text.split(/^---.*$/m).map((part) => {
    let [apiVersion, kind] = ['', ''];
    for (const match of part.matchAll(HEAD)) {
      apiVersion = match[1] ?? apiVersion;
      kind = match[2] ?? kind;
    }
    return apiVersion === '' || kind === '' ? '' : `${apiVersion} ${kind}`;
  });
}

/** The fields that may stand at a path of the first kind in the text whose schema has it. */
export function useSchemaFields(text: string): (path: string[]) => Hint[] {
  const [kinds, setKinds] = useState<Kind[]>([]);
  const key = [...new Set(kindsIn(text))]
    .filter((one) => one !== '')
    .slice(0, 8)
    .join(',');
  useEffect(() => {
    let current = true;
    const read = key
      .split(',')
      .filter((one) => one !== '')
      .map((one) => {
        const [apiVersion = '', kind = ''] = one.split(' ');
        return kindOf(apiVersion, kind).catch(() => null);
      });
    void Promise.all(read).then((found) => {
      if (current) setKinds(found.filter((one) => one !== null));
    });
    return () => {
      current = false;
    };
  }, [key]);
  return useCallback(
    (path) => {
      for (const kind of kinds) {
        const fields = fieldsAt(kind, path);
        if (fields.length > 0) return fields;
      }
      return [];
    },
    [kinds],
  );
}
