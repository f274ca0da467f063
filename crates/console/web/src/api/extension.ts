// The `keelson.io/` parameters that the server announces, with the requests that accept each of them.

import { getJson } from './client';

interface Announcement {
  parameters?: { name: string; requests?: string[] }[];
  /** The path of the search over all resources. */
  search?: string;
}

interface Known {
  parameters: Set<string>;
  search: string;
}

async function announced(): Promise<Known> {
  const found = await getJson<Announcement>('/apis/keelson.io/v1alpha1');
  const parameters = (found.parameters ?? []).flatMap(({ name, requests }) =>
    (requests ?? []).map((one) => `${one} ${name}`),
  );
  const { search } = found;
  const isPath = typeof search === 'string' && search.startsWith('/apis/');
  return { parameters: new Set(parameters), search: isPath ? search : '' };
}

let known: Promise<Known> | null = null;

function ask(): Promise<Known> {
  known ??= announced().catch(() => ({ parameters: new Set<string>(), search: '' }));
  return known;
}

/** Whether the server takes a parameter; asked once. One that announces nothing takes those of lists alone. */
export async function takes(request: 'get' | 'list' | 'watch', parameter: string): Promise<boolean> {
  return (await ask()).parameters.has(`${request} keelson.io/${parameter}`);
}

/** The path of the search over all resources; empty where the server has none. */
export async function searchPath(): Promise<string> {
  return (await ask()).search;
}
