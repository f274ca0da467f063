import assert from 'node:assert/strict';
import test from 'node:test';
import { requestBytes, responseOf, textOf, wrongIn } from '../src/lib/http';

const bytes = (text: string) => new TextEncoder().encode(text);
const request = (path: string, headers = '') => ({ method: 'GET', path, host: 'localhost:80', headers, body: '' });
const read = (text: string, method = 'GET') => {
  const found = responseOf(bytes(text), method);
  return found === null ? null : [found.status, textOf(found.body), found.isWhole];
};

test('a request has one head, whatever the fields say', () => {
  assert.equal(wrongIn(request('/a?b=c%20d', 'Accept: text/plain\nX-A: b')), '');
  for (const path of ['', 'a', '/a b', '/a\r\nHost: x', '/ü']) assert.equal(wrongIn(request(path)) === '', false);
  for (const field of ['no colon', 'Host: x', 'content-length: 5', 'A B: c', 'Transfer-Encoding: chunked']) {
    assert.equal(wrongIn(request('/', field)) === '', false);
  }
  const text = new TextDecoder().decode(requestBytes({ ...request('/', 'X-A: b'), method: 'POST', body: 'ü' }));
  assert.equal(
    text,
    'POST / HTTP/1.1\r\nHost: localhost:80\r\nConnection: close\r\nContent-Length: 2\r\nX-A: b\r\n\r\nü',
  );
});

test('responses are read as far as they are there', () => {
  assert.equal(read('HTTP/1.1 200 OK\r\nContent-Le'), null);
  assert.deepEqual(read('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc'), ['200 OK', 'abc', false]);
  assert.deepEqual(read('HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef'), ['200 OK', 'abc', true]);
  assert.deepEqual(read('HTTP/1.0 404 No\r\n\r\nuntil the end'), ['404 No', 'until the end', false]);
  assert.deepEqual(read('HTTP/1.1 204 \r\n\r\n'), ['204', '', true]);
  assert.deepEqual(read('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n', 'HEAD'), ['200 OK', '', true]);
  assert.deepEqual(read('HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx'), [
    '200 OK',
    'x',
    true,
  ]);
  assert.equal(read('SSH-2.0-OpenSSH\r\n\r\n'), null);
});

test('chunks are joined, and torn or odd ones end the body', () => {
  const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
  assert.deepEqual(read(`${head}3\r\none\r\n4;x=y\r\n two\r\n0\r\n\r\n`), ['200 OK', 'one two', true]);
  assert.deepEqual(read(`${head}3\r\none\r\n40\r\n tw`), ['200 OK', 'one tw', false]);
  assert.deepEqual(read(`${head}-5\r\nabc`), ['200 OK', '', false]);
  assert.deepEqual(read(`${head}zz\r\nabc`), ['200 OK', '', false]);
});

test('bytes that are no text are no text', () => {
  assert.equal(textOf(new Uint8Array([0xff, 0xfe])), null);
  assert.equal(textOf(new Uint8Array([65, 0, 66])), null);
  assert.equal(textOf(bytes('ä')), 'ä');
});
