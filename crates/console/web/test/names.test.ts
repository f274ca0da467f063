import assert from 'node:assert/strict';
import test from 'node:test';
import { apiPath, collectionPath, objectPath } from '../src/api/paths';
import { isLater } from '../src/lib/objects';
import { replicasOf } from '../src/lib/replicas';
import { unseenIn, visible } from '../src/lib/visible';

test('each segment of an address is one name', () => {
  const of = { group: 'a.io', version: 'v1', plural: '../../apis/b?c=d' };
  assert.equal(collectionPath(of, 'n/m'), '/apis/a.io/v1/namespaces/n%2Fm/..%2F..%2Fapis%2Fb%3Fc%3Dd');
  assert.equal(
    objectPath({ group: '', version: 'v1', plural: 'pods' }, 'n', 'x#y', 'log'),
    '/api/v1/namespaces/n/pods/x%23y/log',
  );
  for (const bad of ['.', '..', '']) assert.throws(() => apiPath('api', bad), /names nothing/);
});

test('only a whole number from 0 to that of an int32 is a number of replicas', () => {
  const check = (text: string, expected: number | null) => assert.equal(replicasOf(text), expected, text);
  check('0', 0);
  check(' 7 ', 7);
  check('007', 7);
  check('2147483647', 2147483647);
  for (const text of [
    '',
    ' ',
    '-1',
    '+1',
    '1.5',
    '1e3',
    '0x1',
    'a',
    '2147483648',
    '99999999999',
    '1 2',
    'Infinity',
    '٣',
  ]) {
    check(text, null);
  }
});

test('states are ordered by their resourceVersions, where these are numbers', () => {
  assert.equal(isLater('10', '9'), true);
  assert.equal(isLater('9', '10'), false);
  assert.equal(isLater('10', '10'), false);
  assert.equal(isLater('18446744073709551615', '18446744073709551614'), true);
  assert.equal(isLater('a', 'b'), true);
  assert.equal(isLater('a', 'a'), false);
});

test('characters that can not be seen are shown', () => {
  assert.equal(visible('user\u202etxt.exe\u2066 \u200bzero'), 'user⟨U+202E⟩txt.exe⟨U+2066⟩ ⟨U+200B⟩zero');
  assert.equal(visible('\u{e0041}a\u0000\u001b[1m'), '⟨U+E0041⟩a⟨U+0000⟩⟨U+001B⟩[1m');
  const plain = 'äß 漢字 שלום \u{1f600}\n\tx';
  assert.equal(visible(plain), plain);
  assert.deepEqual(unseenIn('a\nb\u202e\u200b\n\ufeff', 2), ['line 2: ⟨U+202E⟩', 'line 2: ⟨U+200B⟩']);
});
